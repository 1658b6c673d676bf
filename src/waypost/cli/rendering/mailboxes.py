"""Endpoints and numbers as text."""

from rich.padding import Padding
from rich.text import Text

from waypost.cli.facts import EndpointFacts, Stats
from waypost.cli.rendering.console import ROWS_MAX, ago, at, console, plain, plural, table
from waypost.relay.inspection.stats import MailboxStats


def show_endpoints(endpoints: list[EndpointFacts]) -> None:
    """A table of endpoints, in order of registration."""
    out = console()
    if not endpoints:
        out.print("No endpoint is registered here yet: 'waypost send SUBJECT ... --register'.")
        return
    rows = table("Endpoint", "Waiting", "Leased", "Dead", "Registered", "Mailbox", numbers=_COUNTS)
    for one in endpoints[:ROWS_MAX]:
        rows.add_row(
            Text(one.subject, style="cyan"),
            *_counts(one.pending, one.leased, one.dead),
            ago(one.registered_at),
            one.hash if one.maildir_path else "-",
        )
    out.print(rows)
    _say_how_many_more(len(endpoints))


def show_stats(stats: Stats) -> None:
    """Where, how much, who, what happened lately, and what is wrong."""
    out = console()
    out.print(Text(stats.url or stats.data_dir, style="bold"))
    out.print(f"{_running(stats)}; storage {stats.storage}, durability {stats.durability}")
    if stats.last_event_at is not None:
        out.print(f"{plural(stats.seq, 'event')} so far, the last {ago(stats.last_event_at)}")
    waiting, leased, dead = (stats.by_status[one] for one in ("pending", "leased", "dead"))
    out.print(
        f"{plural(stats.total_messages, 'message')}:"
        f" {waiting:,} waiting, {leased:,} leased, {dead:,} dead"
    )
    _show_mailboxes(stats.endpoints)
    if stats.counted_since is not None or stats.url:
        since = at(stats.counted_since) if stats.counted_since else "it was started"
        out.print(f"\nSince {since}")
        _show_counts("happened", stats.events)
        _show_counts("refused", stats.rejected)
    for problem in stats.problems:
        out.print(Text.assemble(("problem: ", "bold red"), plain(problem)))


def _running(stats: Stats) -> str:
    if stats.url:
        return f"served, {plural(len(stats.connected), 'agent')} connected"
    return f"in use by process {stats.in_use_by}" if stats.in_use_by else "no relay is running"


_COUNTS = ("Waiting", "Leased", "Dead")


def _show_mailboxes(endpoints: list[MailboxStats]) -> None:
    if not endpoints:
        return
    fullest = sorted(endpoints, key=lambda one: (-one.pressure, -one.bytes, -one.dead))
    rows = table(
        *("Endpoint", *_COUNTS, "Bytes", "Full", "Most of it from"),
        numbers=(*_COUNTS, "Bytes", "Full"),
    )
    for one in fullest[:ROWS_MAX]:
        style = "red" if one.pressure >= 1 else "yellow" if one.pressure >= 0.8 else ""
        rows.add_row(
            Text(one.subject, style="cyan"),
            *_counts(one.pending, one.leased, one.dead),
            f"{one.bytes:,}",
            Text(f"{one.pressure:.0%}", style=style),
            _top_sender(one),
        )
    console().print()
    console().print(rows)
    _say_how_many_more(len(endpoints))


def _show_counts(title: str, counts: dict[str, int]) -> None:
    if counts:
        largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        said = ", ".join(f"{name} {count:,}" for name, count in largest)
        console().print(Padding(f"{title}: {said}", (0, 0, 0, 2), expand=False))


def _counts(*numbers: int | None) -> tuple[str, str, Text]:
    """Waiting, leased and dead; '-' for what nobody told."""
    pending, leased, dead = ("-" if one is None else f"{one:,}" for one in numbers)
    return pending, leased, Text(dead, style="" if dead in ("0", "-") else "red")


def _top_sender(one: MailboxStats) -> str:
    if not one.top_senders:
        return ""
    sender, count, _ = one.top_senders[0]
    return f"{sender} ({count:,})"


def _say_how_many_more(count: int) -> None:
    if count > ROWS_MAX:
        console().print(f"... and {count - ROWS_MAX:,} more; --json lists all.", style="dim")
