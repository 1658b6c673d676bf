"""`./run bench stream`: how far tables are behind a live relay, and what that costs.

A relay writes events at a fixed rate, `waypost pipeline stream` follows its journal, each in a
process of its own on the same machine. Lag, memory and numbers of files are sampled all the time:
all of them should stay flat.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.program import Benchmark, Found, run_one
from bench.series import median, number_text, percentile
from bench.stream.sampling import LakeWatch, memory_mb
from bench.tables import Table
from bench.turns import Log

MINUTES = 3.0
RATE = 5000.0
SAMPLE_SECONDS = 2.0
START_SECONDS_MAX = 300.0
_OUTPUT = "output.txt"
MOMENTS = (1, 5, 15, 30, 45, 60)
"""Minutes at which the table has a row, besides the last one."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add length, rate, and how often the tables are built."""
    parser.add_argument(
        "--minutes", type=float, default=MINUTES, help="length of the load (%(default)s)"
    )
    parser.add_argument("--rate", type=float, default=RATE, help="events a second (%(default)s)")
    parser.add_argument(
        "--build-every", default="5", metavar="SECONDS", help="as that of `stream` (%(default)s)"
    )
    parser.add_argument(
        "--conf", action="append", default=[], metavar="KEY=VALUE", help="a setting for Spark"
    )


async def measure(options: argparse.Namespace, scratch: Path, log: Log) -> Found:
    """Follow a relay for some minutes, from the first tables on."""
    data, lake = scratch / "relay", scratch / "lake"
    relay_command = ["-m", "bench.stream.producer", str(data), str(options.rate)]
    stream_command = ["-m", "waypost", "pipeline", "stream", "--json", "--no-server"]
    stream_command += ["--journal", str(data), "--lake", str(lake)]
    stream_command += ["--build-every", options.build_every]
    stream_command += [word for one in options.conf for word in ("--conf", one)]
    watch = LakeWatch(lake)
    samples: list[dict[str, float]] = []
    with _process(relay_command, scratch) as relay:
        await _wait_for_journal(data, relay, scratch)
        with _process(stream_command, scratch) as stream:
            begin = started = time.monotonic()
            while not samples or time.monotonic() - begin < options.minutes * 60:
                _require_running([relay, stream], scratch)
                found = watch.sample()
                now = time.monotonic()
                if found is None and not samples and now - started > START_SECONDS_MAX:
                    raise RuntimeError(f"no tables within {START_SECONDS_MAX:.0f} s")
                if found is not None:
                    begin = begin if samples else now
                    used = {**memory_mb(stream.pid), "relay_mb": sum(memory_mb(relay.pid).values())}
                    samples.append({"at_s": now - begin, **found, **used})
                    log(_line(samples[-1]))
                await asyncio.sleep(SAMPLE_SECONDS)
            first_tables_s = begin - started
    return {"rate": options.rate, "first_tables_s": first_tables_s, "samples": samples}


async def _wait_for_journal(data: Path, relay: "subprocess.Popen[bytes]", scratch: Path) -> None:
    """Wait for the first segment, open as it is. Raises `RuntimeError` if there is none in time."""
    until = time.monotonic() + START_SECONDS_MAX
    while not _has_segment(data):
        _require_running([relay], scratch)
        if time.monotonic() > until:
            raise RuntimeError(f"no journal within {START_SECONDS_MAX:.0f} s")
        await asyncio.sleep(0.1)


def _has_segment(data: Path) -> bool:
    return any(path.suffix in (".open", ".jsonl") for path in data.glob("journal/*"))


@contextmanager
def _process(arguments: list[str], scratch: Path) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a Python program for the block; it ends with SIGTERM."""
    with (scratch / _OUTPUT).open("ab") as sink:
        process = subprocess.Popen(
            [sys.executable, *arguments], stdout=sink, stderr=sink, start_new_session=True
        )
        try:
            yield process
            process.send_signal(signal.SIGTERM)
            with suppress(subprocess.TimeoutExpired):  # a last build of a long day
                process.wait(START_SECONDS_MAX)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _require_running(processes: "Sequence[subprocess.Popen[bytes]]", scratch: Path) -> None:
    """Raise `RuntimeError` with the end of all output if a process has ended."""
    for process in processes:
        if process.poll() is not None:
            tail = (scratch / _OUTPUT).read_text(errors="replace")[-3000:]
            raise RuntimeError(f"{process.args!r} ended with {process.returncode}:\n{tail}")


def _line(sample: dict[str, float]) -> str:
    return (
        f"{sample['at_s'] / 60:,.1f} min: events {sample['events_lag_s']:.1f} s behind, tables"
        f" {sample['tables_lag_s']:.1f} s; Java {sample['java_mb']:,.0f} MB,"
        f" {sample['files_on_disk']:,} files"
    )


def tables(found: Found) -> list[Table]:
    """Return the lag over the whole time, and all figures at some moments."""
    samples = found["samples"]
    last = samples[-1]
    seconds = max(last["at_s"] - samples[0]["at_s"], 1e-9)
    rate = (last["events"] - samples[0]["events"]) / seconds
    lags = [
        [name, *(number_text(value) for value in (median(own), percentile(own, 99), max(own)))]
        for name in ("events", "tables")
        for own in ([one[f"{name}_lag_s"] for one in samples],)
    ]
    minutes = [minute for minute in MOMENTS if minute * 60 <= last["at_s"]]
    moments = [min(samples, key=lambda one: abs(one["at_s"] - at * 60)) for at in minutes]
    return [
        Table(
            f"Stream of a relay with {found['rate']:,.0f} events/s: lag over"
            f" {last['at_s'] / 60:,.0f} min",
            ["table", "p50, s", "p99, s", "max, s"],
            lags,
            f"{rate:,.0f} events/s arrived in the lake. Lag is the age of the newest"
            f" event in the table; first tables after {found['first_tables_s']:.0f} s",
        ),
        Table(
            "Stream: lag, memory and files over time",
            ["minute", *(heading for heading, _ in _COLUMNS)],
            [_row(one) for one in [*moments, last]],
            "Files listed: of all tables in the newest version",
        ),
    ]


def _row(sample: dict[str, float]) -> list[str]:
    return [f"{sample['at_s'] / 60:.0f}", *(number_text(sample[kind]) for _, kind in _COLUMNS)]


_COLUMNS = (
    ("events lag, s", "events_lag_s"),
    ("tables lag, s", "tables_lag_s"),
    ("Java, MB", "java_mb"),
    ("Python, MB", "python_mb"),
    ("relay, MB", "relay_mb"),
    ("files listed", "listed_files"),
    ("of events", "events_files"),
    ("files on disk", "files_on_disk"),
)

BENCHMARK = Benchmark(
    "stream",
    __doc__,
    measure,
    tables,
    ("--minutes", "0.5", "--rate", "1000"),
    add_options,
    in_quick_run=False,
)

if __name__ == "__main__":
    run_one(BENCHMARK)
