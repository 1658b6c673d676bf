"""`top`, `tail` and `ping` as text."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from waypost.cli.rendering.console import (
    at,
    duration,
    event_label,
    plural,
    print_json_line,
    table,
)
from waypost.cli.rendering.findings import findings_text
from waypost.cli.results import PingResult, StatsResult
from waypost.wire.envelopes import instant
from waypost.wire.events import Accepted, AnyEvent, Rejected
from waypost.wire.printable import printable

TOP_ROWS_MAX = 10


def rates_of(stats: StatsResult, before: StatsResult | None, seconds: float) -> dict[str, float]:
    """Return stored, acknowledged and rejected messages per second since `before`."""
    if before is None:
        return {}

    def change(now: Mapping[str, int], then: Mapping[str, int]) -> float:
        return max(0, sum(now.values()) - sum(then.values())) / max(seconds, 0.001)

    kinds = {"stored": "accepted", "acknowledged": "acked"}
    rates = {
        word: change({kind: stats.events.get(kind, 0)}, {kind: before.events.get(kind, 0)})
        for word, kind in kinds.items()
    }
    return {**rates, "rejected": change(stats.rejected, before.rejected)}


def top_line(stats: StatsResult, rates: Mapping[str, float]) -> str:
    """Return one line about a relay."""
    counts = [f"{stats.by_status.get(one, 0):,} {one}" for one in ("pending", "leased", "dead")]
    speeds = [f"{rate:,.1f}/s {word}" for word, rate in rates.items()]
    return ", ".join([*counts, *speeds, plural(len(stats.findings), "finding")])


def top_screen(
    stats: StatsResult, rates: Mapping[str, float], options: list[str]
) -> RenderableType:
    """Return one screen: what to look at, counts and rates, and the fullest mailboxes."""
    fullest = sorted(stats.endpoints, key=lambda one: (-one.pressure, -one.pending, one.subject))
    numbers = ("Pending", "Leased", "Dead", "Full")
    rows = table("Endpoint", *numbers, numbers=numbers)
    for one in fullest[:TOP_ROWS_MAX]:
        counts = (f"{one.pending:,}", f"{one.leased:,}", f"{one.dead:,}", f"{one.pressure:.0%}")
        rows.add_row(printable(one.subject), *counts)
    where = Text(printable(stats.url or stats.data_dir), style="bold")
    looked = findings_text(stats.findings, stats.url, options)
    line = Text(top_line(stats, rates))
    end = Text("q ends", style="dim")
    return Group(where, line, Text(), looked, Text(), rows, end)


def event_line(event: AnyEvent) -> str:
    """Return one line about an event: time, kind, from whom to whom, which message, and why."""
    fields = _fields(event)
    kind = str(type(event).__struct_config__.tag)
    ids = fields.get("ids") or [fields.get("id", "")]
    about = [f"{at(instant(event.at_us))}  {event_label(kind):<12}"]
    sender, endpoint = fields.get("sender", ""), fields.get("endpoint") or fields.get("subject", "")
    about.append(f"{sender} → {endpoint}" if sender and endpoint else sender or endpoint)
    about.append(ids[0] if len(ids) == 1 else plural(len(ids), "message"))
    about += [str(fields.get(name, "")) for name in ("reason", "detail", "after")]
    if fields.get("count", 1) > 1:
        about.append(f"× {fields['count']:,}")
    return printable(" ".join(one for one in about if one))


def print_event(event: AnyEvent) -> None:
    """Print an event as one line of JSON, without its payload."""
    print_json_line(_fields(event))


def _fields(event: AnyEvent) -> dict[str, Any]:
    """Return the fields of an event, without its payload."""
    if isinstance(event, Accepted | Rejected):
        event = msgspec.structs.replace(event, payload=msgspec.UNSET)
    found: dict[str, Any] = msgspec.to_builtins(event)
    return found


def ping_text(result: PingResult) -> str:
    """Return the round trip as a sentence."""
    median, least, most = (
        duration(timedelta(milliseconds=one))
        for one in (result.median_ms, result.min_ms, result.max_ms)
    )
    version = f"Waypost {result.version}" if result.version else "an older version of Waypost"
    return (
        f"{result.url}: ready, {version}; round trip {median}"
        f" (median of {result.count:,}, {least} to {most})"
    )
