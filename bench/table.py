"""Measurements as tables or JSON.

A ratio is a peer's rate divided by the baseline's at the same number in flight: 2.0x is twice as
many messages per second as the baseline.
"""

import argparse
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from rich.console import Console
from rich.table import Table

from bench.workload import PAYLOAD_BYTES, Measurement, Rate

TITLES = {
    "publish": "Confirmed publishes per second",
    "consume": "Leases and acknowledgements per second",
}


def add_output_options(parser: argparse.ArgumentParser, *, baseline: str) -> None:
    """Add the options `--json` and `--baseline`, with `baseline` as its default."""
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument(
        "--baseline", default=baseline, help="peer that ratios are relative to (%(default)s)"
    )


def show(
    measurements: Sequence[Measurement],
    *,
    baseline: str,
    skipped: Mapping[str, str] | None = None,
    as_json: bool = False,
) -> None:
    """Print everything on stdout; `skipped` has a reason for each peer that was not measured."""
    skipped = skipped or {}
    if as_json:
        print(json.dumps(to_json(measurements, baseline=baseline, skipped=skipped), indent=2))
        return
    console = Console()
    for operation in TITLES:
        console.print(make_table(measurements, operation, baseline=baseline))
    for peer, reason in skipped.items():
        console.print(f"Skipped: {peer}. {reason}", highlight=False)


def to_json(
    measurements: Sequence[Measurement],
    *,
    baseline: str,
    skipped: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Return the measurements and the machine as plain JSON values; rates are per second."""
    return {
        "payload_bytes": PAYLOAD_BYTES,
        "machine": {
            "system": platform.system(),
            "release": platform.release(),
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
        },
        "baseline": baseline,
        "results": [_result(measurement, measurements, baseline) for measurement in measurements],
        "skipped": dict(skipped or {}),
    }


def make_table(measurements: Sequence[Measurement], operation: str, *, baseline: str) -> Table:
    """Return a table with a row per peer and a column per number in flight."""
    numbers = sorted({measurement.in_flight for measurement in measurements})
    found = {(measurement.peer, measurement.in_flight): measurement for measurement in measurements}
    table = Table(
        title=TITLES[operation],
        caption=f"{PAYLOAD_BYTES}-byte payloads; median ± half the spread; ratio to {baseline}",
    )
    table.add_column("peer")
    for number in numbers:
        table.add_column(f"{number:,} in flight", justify="right", no_wrap=True)
    for peer in dict.fromkeys(measurement.peer for measurement in measurements):
        cells = []
        for number in numbers:
            measurement = found.get((peer, number))
            factor = ratio(measurement, measurements, operation, baseline) if measurement else None
            cells.append(_cell(measurement, operation, factor))
        table.add_row(peer, *cells, style="bold" if peer == baseline else None)
    return table


def ratio(
    measurement: Measurement,
    measurements: Iterable[Measurement],
    operation: str,
    baseline: str,
) -> float | None:
    """Return the rate relative to the baseline; None if the baseline was not measured."""
    for other in measurements:
        if other.peer == baseline and other.in_flight == measurement.in_flight:
            return _rate(measurement, operation).median / _rate(other, operation).median
    return None


def _rate(measurement: Measurement, operation: str) -> Rate:
    return measurement.publish if operation == "publish" else measurement.consume


def _cell(measurement: Measurement | None, operation: str, factor: float | None) -> str:
    if measurement is None:
        return "–"
    rate = _rate(measurement, operation)
    spread = (rate.fastest - rate.slowest) / 2 / rate.median
    text = f"{rate.median:,.0f} ±{spread:.0%}"
    return text if factor is None else f"{text} {factor:5.2f}x"


def _result(
    measurement: Measurement, measurements: Iterable[Measurement], baseline: str
) -> dict[str, object]:
    return {
        "peer": measurement.peer,
        "in_flight": measurement.in_flight,
        **{
            operation: {
                **asdict(_rate(measurement, operation)),
                "ratio": ratio(measurement, measurements, operation, baseline),
            }
            for operation in TITLES
        },
    }
