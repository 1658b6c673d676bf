"""Endpoints, agents, statistics and verification reports as text."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.padding import Padding
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from waypost.cli.rendering.console import (
    ROWS_MAX,
    ago,
    at,
    console,
    event_label,
    plural,
    styled,
    table,
)
from waypost.cli.rendering.findings import findings_text
from waypost.cli.results import EndpointStatus, StatsResult
from waypost.policy.breakers import CLOSED
from waypost.relay.inspection.stats import MailboxStats
from waypost.relay.verify.findings import Finding, Outcome, VerifyReport
from waypost.relay.verify.salvage import SalvageReport
from waypost.wire.breaker_bodies import BreakerInfo
from waypost.wire.cards import AgentInfo
from waypost.wire.cluster_bodies import ClusterStatus, PartitionStatus
from waypost.wire.envelopes import instant
from waypost.wire.printable import printable
from waypost.wire.stats_bodies import AgentConnection
from waypost.wire.webhook_bodies import WebhookInfo

_COUNTS = ("Pending", "Leased", "Dead")

_OUTCOME_STYLE = {
    Outcome.FOUND: "yellow",
    Outcome.REPAIRED: "green",
    Outcome.LOST: "bold red",
    Outcome.NOTED: "dim",
}


def show_webhook(webhook: WebhookInfo) -> None:
    """Print the webhook of an agent, and the outcome of the last notice."""
    what = "notices with messages" if webhook.content == "messages" else "notices"
    lines = [f"{webhook.subject}: {what} go to {webhook.url}, set {ago(webhook.set_at)}"]
    last = webhook.last
    if last is None:
        lines.append("no notice since the relay started")
    elif not last.problem:
        lines.append(f"last notice: accepted ({last.status}), {ago(last.at)}")
    else:
        next_step = "given up" if last.final else "tried again later"
        lines.append(f"last notice: {last.problem}, {ago(last.at)}; {next_step}")
    for line in lines:
        console().print(printable(line), soft_wrap=True)


def show_endpoints(endpoints: list[EndpointStatus]) -> None:
    """Print a table of endpoints, in order of registration."""
    out = console()
    if not endpoints:
        out.print("No endpoints. Register one with: waypost send SUBJECT PAYLOAD --register")
        return
    rows = table("Endpoint", *_COUNTS, "Oldest", "Registered", "Mailbox", numbers=_COUNTS)
    for one in endpoints[:ROWS_MAX]:
        rows.add_row(
            styled(one.subject, "cyan"),
            *_counts(one.pending, one.leased, one.dead),
            _age(one.oldest_us),
            ago(one.registered_at),
            printable(one.hash) if one.maildir_path else "-",
        )
    out.print(rows)
    _show_hidden(len(endpoints))


def show_stats(stats: StatsResult, options: list[str]) -> None:
    """Print what to look at, the relay, its message counts, mailboxes and recent events.

    `options` choose the relay in a command.
    """
    out = console()
    out.print(Text(stats.url or stats.data_dir, style="bold"))
    kept = f"storage {stats.storage}, durability {stats.durability}"
    out.print(f"{_state(stats)}; {printable(kept)}")
    for problem in stats.problems:
        out.print(Text.assemble(("problem: ", "bold red"), printable(problem)))
    out.print()
    out.print(findings_text(stats.findings, stats.url, options))
    out.print()
    if stats.last_event_at is not None:
        out.print(f"{plural(stats.seq, 'event')}, the last {ago(stats.last_event_at)}")
    pending, leased, dead = (stats.by_status[one] for one in ("pending", "leased", "dead"))
    scheduled = stats.by_status.get("scheduled", 0)  # a relay of an earlier version has none
    later = f" {scheduled:,} scheduled," if scheduled else ""
    out.print(
        f"{plural(stats.total_messages, 'message')}:"
        f" {pending:,} pending,{later} {leased:,} leased, {dead:,} dead"
    )
    _show_mailboxes(stats.endpoints)
    if stats.breakers:
        out.print()
        show_breakers(stats.breakers)
    if stats.counted_since is not None or stats.url:
        since = at(stats.counted_since) if stats.counted_since else "the relay was started"
        out.print(f"\nSince {since}")
        _show_counts("events", stats.events)
        _show_counts("rejected", stats.rejected)


def show_breakers(breakers: Mapping[str, BreakerInfo]) -> None:
    """Print the breakers that are not at rest; those not closed first."""
    out = console()
    if not breakers:
        out.print("All circuit breakers are closed.")
        return
    ordered = sorted(breakers.items(), key=lambda item: (item[1].state is CLOSED, item[0]))
    rows = table("Endpoint", "Breaker", "Failures", "Opened", numbers=("Failures",))
    for subject, one in ordered[:ROWS_MAX]:
        failures = one.consecutive_failures
        rows.add_row(
            styled(subject, "cyan"),
            Text(one.state, style="" if one.state is CLOSED else "red"),
            "-" if failures is None else f"{failures:,}",
            "-" if one.opened_at is None else ago(instant(one.opened_at * 1000)),
        )
    out.print(rows)
    _show_hidden(len(breakers))


def show_agents(agents: list[AgentConnection]) -> None:
    """Print the connected agents; stuck ones first."""
    out = console()
    if not agents:
        out.print("No agent is connected by WebSocket.")
        return
    rows = table("Agent", "State", "Connected", "Receives", "In flight", numbers=("In flight",))
    ordered = sorted(agents, key=lambda one: (not one.stuck_since_us, one.subject))
    for one in ordered[:ROWS_MAX]:
        stuck = one.stuck_since_us and f"stuck, {ago(instant(one.stuck_since_us))}"
        rows.add_row(
            styled(one.subject, "cyan"),
            Text(stuck, style="red") if stuck else Text("alive"),
            ago(instant(one.since_us)),
            printable(one.receive),
            f"{one.unconfirmed:,}",
        )
    out.print(rows)
    _show_hidden(len(agents))


@contextmanager
def segments_bar() -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on stderr while segments are read, if stderr is a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, total: None
        return
    columns = (TextColumn("reading the journal"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=console(stderr=True), transient=True) as progress:
        task = progress.add_task("", total=None)
        yield lambda done, total: progress.update(task, completed=done, total=total)


def show_report(report: VerifyReport) -> None:
    """Print what was read, each finding with its outcome, and the conclusion."""
    out = console()
    out.print(Text(report.data_dir, style="bold"))
    out.print(
        f"read {plural(report.segments, 'segment')} with {plural(report.events, 'event')},"
        f" {plural(report.messages, 'message')} in mailboxes"
    )
    if report.chained_from:
        out.print(f"every batch from event {report.chained_from:,} on names the one before it")
    if report.in_use_by:
        out.print(f"in use by process {report.in_use_by}: its work in progress was not checked")
    if report.findings:
        out.print()
        out.print(_findings(report.findings))
    hidden = len(report.findings) - ROWS_MAX
    if hidden > 0:
        out.print(f"... and {hidden:,} more; --json lists all.", style="dim")
    if report.findings:
        out.print()
    out.print(_conclusion(report))


def _state(stats: StatsResult) -> str:
    if stats.url:
        stuck = f", {len(stats.stuck):,} of them stuck" if stats.stuck else ""
        return f"served, {plural(len(stats.connected), 'agent')} connected{stuck}"
    return f"in use by process {stats.in_use_by}" if stats.in_use_by else "no relay is running"


def _show_mailboxes(endpoints: list[MailboxStats]) -> None:
    if not endpoints:
        return
    fullest = sorted(endpoints, key=lambda one: (-one.pressure, -one.bytes, -one.dead))
    columns = ("Endpoint", *_COUNTS, "Oldest", "Bytes", "Full", "Top sender")
    rows = table(*columns, numbers=(*_COUNTS, "Bytes", "Full"))
    for one in fullest[:ROWS_MAX]:
        style = "red" if one.pressure >= 1 else "yellow" if one.pressure >= 0.8 else ""
        rows.add_row(
            styled(one.subject, "cyan"),
            *_counts(one.pending, one.leased, one.dead),
            _age(one.oldest_us),
            f"{one.bytes:,}",
            Text(f"{one.pressure:.0%}", style=style),
            _top_sender(one),
        )
    console().print()
    console().print(rows)
    _show_hidden(len(endpoints))


def show_salvage(report: SalvageReport) -> None:
    """Print what was salvaged from mailbox files, and what was not."""
    pending = plural(report.pending, "pending message")
    dead = plural(report.dead_letters, "dead letter")
    endpoints = plural(report.endpoints, "endpoint")
    pairs = plural(report.pairs, "last-seen pair")
    console().print(f"New journal: {pending} and {dead} of {endpoints}, {pairs}.")
    if report.skipped_count:
        files = plural(report.skipped_count, "file")
        console().print(f"{files} could not be used and stayed in place:")
    for one in report.skipped[:ROWS_MAX]:
        console().print(Text(f"  {printable(one.file)}: {printable(one.reason)}"))
    _show_hidden(report.skipped_count)


def _show_counts(title: str, counts: dict[str, int]) -> None:
    if counts:
        largest = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        text = ", ".join(f"{printable(event_label(name))} {count:,}" for name, count in largest)
        console().print(Padding(f"{title}: {text}", (0, 0, 0, 2), expand=False))


def _counts(*numbers: int | None) -> tuple[str, str, Text]:
    """Format pending, leased and dead; '-' for an unknown count."""
    pending, leased, dead = ("-" if one is None else f"{one:,}" for one in numbers)
    return pending, leased, Text(dead, style="" if dead in ("0", "-") else "red")


def _age(at_us: int | None) -> str:
    return "-" if at_us is None else ago(instant(at_us))


def _top_sender(one: MailboxStats) -> str:
    if not one.top_senders:
        return ""
    sender, count, _ = one.top_senders[0]
    return f"{printable(sender)} ({count:,})"


def _show_hidden(count: int) -> None:
    if count > ROWS_MAX:
        console().print(f"... and {count - ROWS_MAX:,} more; --json lists all.", style="dim")


def _conclusion(report: VerifyReport) -> Text:
    found, repaired, lost = (
        sum(one.outcome is outcome for one in report.findings)
        for outcome in (Outcome.FOUND, Outcome.REPAIRED, Outcome.LOST)
    )
    parts = [f"{plural(repaired, 'problem')} repaired"] if repaired else []
    if lost:
        parts.append(f"{plural(lost, 'loss', 'losses')} beyond repair")
    if found:
        parts.append(f"{plural(found, 'problem')} to repair with 'waypost verify --repair'")
    if not parts:
        return Text("Everything is in order.", style="green")
    return Text(f"{', '.join(parts)}.", style="green" if report.ok else "red")


def _findings(findings: list[Finding]) -> Table:
    rows = Table.grid(padding=(0, 2))
    rows.add_column(no_wrap=True)
    rows.add_column(no_wrap=True)
    rows.add_column(overflow="fold")
    for one in findings[:ROWS_MAX]:
        text = Text.assemble(styled(one.where, "cyan"), f": {printable(one.text)}")
        rows.add_row(Text(one.outcome, style=_OUTCOME_STYLE[one.outcome]), one.part, text)
    return rows


def show_directory(agents: list[AgentInfo], skill: str | None) -> None:
    """Print the agents of the directory, or of those with `skill`, as a table."""
    out = console()
    rows = table("agent", "presence", "skills", "description")
    for one in agents[:ROWS_MAX]:
        rows.add_row(
            styled(one.subject, "bold"),
            _presence(one),
            styled(", ".join(one.skills), "cyan"),
            printable(one.description),
        )
    if agents:
        out.print(rows)
    having = f" with the skill {printable(skill)}" if skill else ""
    out.print(f"{plural(len(agents), 'agent')}{having}.", style="dim" if agents else "")


def show_agent(agent: AgentInfo) -> None:
    """Print one agent: its card, its key and its presence."""
    out = console()
    out.print(Text.assemble(styled(agent.subject, "bold"), f"  {_presence(agent)}"))
    lines = (
        ("description", agent.description),
        ("skills", ", ".join(agent.skills)),
        ("version", agent.version),
        ("requests", "accepted" if agent.accepts_requests else "not accepted"),
        ("public key", agent.public_key),
    )
    for name, text in lines:
        if text:
            out.print(f"  {name:<12} {printable(text)}", soft_wrap=True)


def _presence(agent: AgentInfo) -> str:
    if agent.connected:
        return "connected"
    return "" if agent.last_seen is None else f"seen {ago(agent.last_seen)}"


def print_cluster(status: ClusterStatus) -> None:
    """Print nodes and partitions, and what needs attention."""
    screen = console()
    nodes = table("Node", "Address", "Partitions", numbers=("Partitions",))
    for node in status.nodes:
        nodes.add_row(printable(node.name), printable(node.address), f"{node.owned:,}")
    screen.print(nodes)
    for node in status.nodes:
        if node.problem:
            screen.print(f"{node.name}: {node.problem}", soft_wrap=True)
    rows = table(
        "Partition", "Owner", "Epoch", "Log position", "MiB", "State",
        numbers=("Partition", "Epoch", "Log position", "MiB"),
    )  # fmt: skip
    for one in status.partitions:
        counts = (f"{one.epoch:,}", f"{one.position:,}", f"{one.stored_bytes / 2**20:,.1f}")
        rows.add_row(str(one.number), printable(one.owner or "–"), *counts, state_of(one))
    screen.print(rows)
    troubled = sum(state_of(one) != "serving" for one in status.partitions)
    screen.print(
        f"{plural(troubled, 'partition needs', 'partitions need')} attention."
        if troubled
        else f"All {plural(len(status.partitions), 'partition')} served."
    )


def state_of(partition: PartitionStatus) -> str:
    """Return in a few words how a partition is."""
    if partition.problem:
        return printable(partition.problem)
    if not partition.owner:
        return "no owner: start a node, or wait some seconds for a take-over"
    if not partition.is_alive:
        return f"{printable(partition.owner)} is gone: a node takes over within seconds"
    if partition.replicas_behind:
        return f"{partition.replicas_behind} of {partition.replicas} copies are behind"
    return "serving"
