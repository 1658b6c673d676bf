"""Messages as text: send results, requests, inboxes, received messages, histories, dead letters."""

import time
from collections.abc import Iterator
from datetime import timedelta

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from waypost.cli.rendering.console import (
    ROWS_MAX,
    ago,
    at,
    console,
    duration,
    event_label,
    note,
    plural,
    print_json,
    print_json_line,
    styled,
    table,
)
from waypost.cli.results import CommandRun, Confirmation, InboxContents, ReceivedMessage, SendReport
from waypost.client.errors import RequestBlocked, RequestFailed, RequestTimedOut
from waypost.policy.budgets import BudgetCut
from waypost.policy.reasons import Reason
from waypost.relay.inspection.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.inspection.history import HistoryEntry, MessageHistory
from waypost.wire.envelopes import Envelope, instant
from waypost.wire.history_bodies import Thread
from waypost.wire.printable import printable
from waypost.wire.results import NeverConnected
from waypost.wire.scheduled import ScheduledMessage

_PAYLOAD_MAX_CHARS = 400
_SHOWN_MAX_MS = 1000 * 366 * 24 * 3_600_000

_STATUS = {
    "accepted": "pending",
    "returned": "pending",
    "redriven": "pending",
    "queued": "pending",
    "cancelled": "cancelled before it was due",
    "leased": "leased, not yet acknowledged",
    "acked": "acknowledged",
    "failed": "dead letter",
    "evicted": "dead letter",
    "expired": "expired",
    "rejected": "rejected",
}
_STYLE = {
    "check": "dim",
    "accepted": "green",
    "acked": "green",
    "rejected": "red",
    "failed": "red",
    "evicted": "red",
    "expired": "yellow",
}


def show_send_report(
    result: SendReport, waited_s: float | None = None, *, later: bool = False
) -> None:
    """Print where a message was delivered, or will be `later`, or why not and what to do."""
    out = console()
    if result.delivered_to:
        done = "scheduled for" if later else "delivered to"
        message_id = styled(result.message_id, "bold")
        out.print(Text.assemble(message_id, f": {done} ", _recipients(result)))
        if result.was_stored is not None:
            show_confirmation(
                Confirmation(result.message_id, result.confirmed_by, result.was_stored)
            )
        elif waited_s is not None:
            out.print(
                f"Not confirmed within {waited_s:g} s: the message is stored, and the confirmation"
                " goes to the sender's mailbox.",
                soft_wrap=True,
            )
        if result.budget_cut:
            cut = ", ".join(_granted(result.budget_cut))
            out.print(f"The relay cut the requested budget: {cut}", soft_wrap=True)
    elif not result.rejected:
        out.print(f"No endpoint matches {result.subject}: the message was not delivered.")
        if "*" in result.subject or ">" in result.subject:
            out.print("List the endpoints with 'waypost endpoints'.")
        else:
            out.print("Send it again with --register to register that subject first.")
    if result.never_connected is not None and result.was_stored is None:
        out.print(never_connected_text(result.subject, result.never_connected), soft_wrap=True)
    for rejection in result.rejected:
        endpoint = f" by {printable(rejection.endpoint)}" if rejection.endpoint else ""
        line = Text.assemble(("rejected", "red"), f"{endpoint}: {rejection.reason}")
        if rejection.detail:
            line.append(f" ({printable(rejection.detail)})")
        out.print(line)
        out.print(Padding(rejection.advice, (0, 0, 0, 2), expand=False))


def never_connected_text(subject: str, note: NeverConnected) -> str:
    """Return that no agent has connected as `subject`, and which was probably meant."""
    meant = f"; did you mean {printable(note.did_you_mean)}?" if note.did_you_mean else "."
    return f"No agent has connected as {printable(subject)} yet{meant}"


def show_confirmation(confirmation: Confirmation) -> None:
    """Print who confirmed a message, and whether it was stored until then."""
    console().print(_confirmation(confirmation), soft_wrap=True)


def note_confirmation(confirmation: Confirmation) -> None:
    """Print a confirmation on stderr, beside the result of the command."""
    note(_confirmation(confirmation).plain)


def show_received(message: ReceivedMessage) -> None:
    """Print a message on one line."""
    line = Text.assemble(
        styled(message.id, "bold"), "  from ", styled(message.sender, "cyan"), "  "
    )
    if message.attempt > 1:
        line.append(f"attempt {message.attempt:,}  ", style="yellow")
    line.append(_content(message))
    console().print(line, soft_wrap=True)


def note_run(run: CommandRun) -> None:
    """Print the outcome of a command for a message on stderr, beside the command's own output."""
    took = duration(timedelta(milliseconds=run.duration_ms))
    parts = [] if run.exit_code is None else [f"exit {run.exit_code} in {took}"]
    parts.append(run.outcome if run.answer is None else f"{run.outcome}, answered")
    error = f": {run.error}" if run.error else ""
    note(f"{run.id} from {run.sender}: {', '.join(parts)}{error}")


def show_reply(reply: ReceivedMessage) -> None:
    """Print the payload of a reply."""
    console().print(_content(reply), soft_wrap=True)


def show_inbox(inbox: InboxContents) -> None:
    """Print the messages of a mailbox, then its counts."""
    out = console()
    for envelope in inbox.messages:
        out.print(_heading(envelope))
        out.print(Padding(_payload(envelope), (0, 0, 0, 2), expand=False))
    for problem in inbox.unreadable:
        out.print(styled(f"unreadable: {problem}", "red"))
    shown = len(inbox.messages)
    if inbox.pending is None:
        summary = plural(shown, "message") + (" acknowledged" if inbox.acknowledged else "")
    elif inbox.acknowledged:
        summary = f"{plural(shown, 'message')} acknowledged, {inbox.pending:,} pending"
    elif shown < inbox.pending:
        summary = f"{shown:,} of {plural(inbox.pending, 'pending message')}"
    else:
        summary = plural(inbox.pending, "pending message")
    leased = f", {inbox.leased:,} leased" if inbox.leased else ""
    out.print(f"{printable(inbox.subject)}: {summary}{leased}.", style="dim" if shown else "")


def show_history(history: MessageHistory) -> None:
    """Print a timeline of the message, and its present status at each endpoint."""
    out = console()
    first = history.steps[0]
    out.print(Text.assemble(styled(history.message_id, "bold"), f"  {at(instant(first.at_us))}"))
    endpoints = list(dict.fromkeys(step.endpoint for step in history.steps if step.endpoint))
    timeline = Table.grid(padding=(0, 2))
    timeline.add_column(justify="right", no_wrap=True)
    timeline.add_column(no_wrap=True)
    if len(endpoints) > 1:
        timeline.add_column(overflow="fold")
    timeline.add_column(overflow="fold")
    previous = -1
    for step in history.steps:
        since = timedelta(microseconds=step.at_us - first.at_us)
        when = "" if step.at_us == previous else f"+{duration(since)}"
        endpoint = [styled(step.endpoint, "")] if len(endpoints) > 1 else []
        timeline.add_row(when, _kind(step), *endpoint, _text(step))
        previous = step.at_us
    out.print(Padding(timeline, (1, 0), expand=False))
    for endpoint_name in endpoints or [""]:
        last = [step for step in history.steps if step.endpoint == endpoint_name][-1]
        out.print(f"{printable(endpoint_name or history.message_id)}: {_status(last)}.")
    if history.thread:
        out.print(f"The whole conversation: waypost thread {printable(history.thread)}")


def show_thread(found: Thread) -> None:
    """Print the messages of a conversation in order, then their number."""
    out, begin = console(), found.messages[0].at_us
    out.print(Text.assemble(styled(found.thread, "bold"), f"  {at(instant(begin))}"))
    rows = Table.grid(padding=(0, 2))
    rows.add_column(justify="right", no_wrap=True)
    rows.add_column(overflow="fold", min_width=26)  # the length of a ULID
    rows.add_column(overflow="fold")
    rows.add_column(overflow="fold")
    for one in found.messages:
        since = duration(timedelta(microseconds=one.at_us - begin))
        way = "answers" if one.answer else "to"
        line = Text.assemble(styled(one.sender, "cyan"), f" {way} ", styled(one.endpoint, "cyan"))
        reason = f": {printable(one.reason)}" if one.reason else ""
        outcome = styled(
            f"{event_label(one.outcome)}{reason}, {plural(one.calls_left, 'call')} left", ""
        )
        rows.add_row(f"+{since}", styled(one.id, "bold"), line, outcome)
    out.print(Padding(rows, (1, 0), expand=False))
    more = " and more: only the first are shown" if found.more else ""
    out.print(f"{plural(len(found.messages), 'message')}{more}.", style="dim")


def show_scheduled(messages: list[ScheduledMessage]) -> None:
    """Print messages that are not due yet, those due first at the top."""
    out = console()
    if messages:
        rows = table("Due", "Id", "From", "To")
        for one in messages[:ROWS_MAX]:
            rows.add_row(
                at(one.deliver_at),
                styled(one.id, "bold"),
                printable(one.sender),
                styled(one.endpoint, "cyan"),
            )
        out.print(rows)
    hidden = len(messages) - ROWS_MAX
    more = f", the first {ROWS_MAX} shown; use --json for all" if hidden > 0 else ""
    out.print(f"{plural(len(messages), 'scheduled message')}{more}.")


def show_dead_letters(dead_letters: list[DeadLetter]) -> None:
    """Print dead letters with their reasons, the newest failures last."""
    out = console()
    for one in dead_letters[-ROWS_MAX:]:
        line = Text.assemble(styled(one.envelope.id, "bold"), "  ", styled(one.endpoint, "cyan"))
        line.append(f"  from {printable(one.envelope.sender)}")
        line.append(f"  {ago(one.failed_at)}", style="dim")
        out.print(line)
        out.print(Padding(styled(one.reason, "red"), (0, 0, 0, 2), expand=False))
    hidden = len(dead_letters) - ROWS_MAX
    more = f", the newest {ROWS_MAX} shown; use --json or --group for all" if hidden > 0 else ""
    total = plural(len(dead_letters), "dead letter")
    out.print(f"{total}{more}.", style="dim" if dead_letters else "")


def show_dead_letter_groups(groups: list[DeadLetterGroup]) -> None:
    """Print the number of dead letters by endpoint and reason, the largest group first."""
    out = console()
    if groups:
        rows = table("Count", "Endpoint", "Reason", "First", "Last", numbers=("Count",))
        for group in groups[:ROWS_MAX]:
            rows.add_row(
                f"{group.count:,}",
                styled(group.endpoint, "cyan"),
                styled(group.reason, "red"),
                ago(group.first_failed_at),
                ago(group.last_failed_at),
            )
        out.print(rows)
    total = sum(group.count for group in groups)
    out.print(f"{plural(total, 'dead letter')} in {plural(len(groups), 'group')}.")


def _granted(cut: BudgetCut) -> Iterator[str]:
    """Yield what a message got of each part of its budget that was cut."""
    if cut.ttl is not None:
        left_ms = max(0, cut.ttl - time.time_ns() // 1_000_000)
        yield f"expires in {duration(timedelta(milliseconds=min(left_ms, _SHOWN_MAX_MS)))}"
    if cut.max_hops is not None:
        yield f"at most {plural(cut.max_hops, 'hop')}"
    if cut.hop_count is not None:
        yield f"{plural(cut.hop_count, 'hop')} so far"
    if cut.call_budget_remaining is not None:
        yield f"{plural(cut.call_budget_remaining, 'call')} left"


def _recipients(result: SendReport) -> str:
    literal = "*" not in result.subject and ">" not in result.subject
    return result.subject if literal else plural(result.delivered_to, "endpoint")


def _heading(envelope: Envelope) -> Text:
    line = Text.assemble(styled(envelope.id, "bold"), "  from ", styled(envelope.sender, "cyan"))
    if envelope.reply_to:
        line.append(f"  reply to {printable(envelope.reply_to)}")
    if envelope.attempt > 1:
        line.append(f"  attempt {envelope.attempt:,}", style="yellow")
    line.append(f"  {ago(envelope.created_at)}", style="dim")
    return line


def _payload(envelope: Envelope) -> Text:
    text = printable(msgspec.json.encode(envelope.payload).decode())
    if len(text) <= _PAYLOAD_MAX_CHARS:
        return Text(text)
    shown = Text(text[:_PAYLOAD_MAX_CHARS])
    shown.append(f" ... ({len(text):,} characters; --json shows all)", style="dim")
    return shown


def _confirmation(confirmation: Confirmation) -> Text:
    stored = "stored until it connected" if confirmation.was_stored else "delivered live"
    line = Text.assemble(styled(confirmation.message_id, "bold"), ": confirmed by ")
    line.append(styled(confirmation.recipient, "cyan"))
    line.append(f" ({stored})")
    return line


def _content(message: ReceivedMessage) -> Text:
    if message.problem:
        return styled(f"cannot be unsealed: {message.problem}", "red")
    return Text(printable(msgspec.json.encode(message.payload).decode()))


def _status(last: HistoryEntry) -> str:
    if last.kind == "accepted" and not last.endpoint:
        return "no endpoint matched"
    if last.kind == "accepted" and ", due at " in last.text:
        return "scheduled"
    if last.kind == "rejected" and Reason.BUDGET_EXCEEDED in last.text:
        return "rejected, and kept as a dead letter"
    return _STATUS.get(last.kind) or printable(last.kind)


def _kind(step: HistoryEntry) -> Text:
    return styled(event_label(step.kind), _STYLE.get(step.kind, "cyan"))


def _text(step: HistoryEntry) -> Text:
    rejected = step.kind == "check" and " passed:" not in step.text
    return styled(step.text, "red" if rejected else "dim" if step.kind == "check" else "")


class RequestOutcomes:
    """Prints each outcome of `total` requests, and counts them by kind."""

    def __init__(self, total: int, *, json: bool) -> None:
        self.failed = 0
        self.rejected = 0
        self._answered = 0
        self._blocked = 0
        self._total = total
        self._json = json

    def add(
        self,
        outcome: ReceivedMessage | SendReport | RequestBlocked | RequestFailed | RequestTimedOut,
    ) -> None:
        """Print and count one outcome."""
        if isinstance(outcome, RequestBlocked | RequestFailed | RequestTimedOut):
            self.failed += 1
            self._blocked += isinstance(outcome, RequestBlocked)
            note(str(outcome))
            return
        if isinstance(outcome, SendReport):
            self.rejected += 1
        else:
            self._answered += 1
        if self._json:
            (print_json if self._total == 1 else print_json_line)(outcome)
        elif isinstance(outcome, SendReport):
            show_send_report(outcome)
        else:
            show_reply(outcome)

    def show_summary(self) -> None:
        """Note how many of several requests were answered, unless all were."""
        if self._total > 1 and self._answered < self._total:
            blocked = f", {self._blocked} blocked by the guard" if self._blocked else ""
            note(f"{self._answered} of {plural(self._total, 'request')} answered{blocked}")
