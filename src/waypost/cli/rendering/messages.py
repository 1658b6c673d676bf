"""Messages as text: what became of one, what waits, and the story of one."""

from datetime import timedelta

import msgspec
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from waypost.cli.facts import Confirmation, Heard, Inbox, Sent
from waypost.cli.rendering.console import ago, at, console, duration, note, plain, plural, styled
from waypost.policy.reasons import Reason
from waypost.relay.journal.history import HistoryEntry, MessageHistory
from waypost.wire.envelopes import Envelope, instant

_PAYLOAD_MAX_CHARS = 400

_STANDING = {
    "accepted": "waiting",
    "returned": "waiting",
    "redriven": "waiting",
    "leased": "handed out, not yet acknowledged",
    "acked": "acknowledged",
    "failed": "a dead letter",
    "evicted": "a dead letter",
    "expired": "gone",
    "rejected": "refused",
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


def show_sent(sent: Sent, waited_s: float | None = None) -> None:
    """What became of a message, and what can be done where it was refused."""
    out = console()
    if sent.delivered_to:
        out.print(Text.assemble((sent.message_id, "bold"), ": delivered to ", _places(sent)))
        if sent.was_stored is not None:
            show_confirmation(Confirmation(sent.message_id, sent.confirmed_by, sent.was_stored))
        elif waited_s is not None:
            out.print(
                f"Nobody has confirmed it within {waited_s:g} s: it is stored, and whoever listens"
                " as its sender later is told.",
                soft_wrap=True,
            )
    elif not sent.rejected:
        out.print(f"Nobody is registered under {sent.subject}, so nobody got the message.")
        if "*" in sent.subject or ">" in sent.subject:
            out.print("See who is there with 'waypost endpoints'.")
        else:
            out.print("Send it again with --register to give that subject a mailbox first.")
    for rejection in sent.rejected:
        where = f" for {rejection.endpoint}" if rejection.endpoint else ""
        line = Text.assemble(("refused", "red"), f"{where}: {rejection.reason}")
        if rejection.detail:
            line.append(f" ({plain(rejection.detail)})")
        out.print(line)
        out.print(Padding(rejection.advice, (0, 0, 0, 2), expand=False))


def show_confirmation(confirmation: Confirmation) -> None:
    """Who has got what was sent, and whether it had to wait for them."""
    console().print(_confirmation(confirmation), soft_wrap=True)


def note_confirmation(confirmation: Confirmation) -> None:
    """The same beside the facts that were asked for."""
    note(_confirmation(confirmation).plain)


def show_heard(heard: Heard) -> None:
    """A message on one line."""
    line = Text.assemble((heard.id, "bold"), "  from ", (heard.sender, "cyan"), "  ")
    line.append(_content(heard))
    console().print(line, soft_wrap=True)


def show_reply(reply: Heard) -> None:
    """What was replied."""
    console().print(_content(reply), soft_wrap=True)


def show_inbox(inbox: Inbox) -> None:
    """Messages one after the other, then how many there are."""
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
        summary = f"{plural(shown, 'message')} acknowledged, {inbox.pending:,} still waiting"
    elif shown < inbox.pending:
        summary = f"{shown:,} of {plural(inbox.pending, 'waiting message')}"
    else:
        summary = plural(inbox.pending, "waiting message")
    leased = f", {inbox.leased:,} leased" if inbox.leased else ""
    out.print(f"{inbox.subject}: {summary}{leased}.", style="dim" if shown else "")


def show_story(story: MessageHistory) -> None:
    """A timeline: when, what, where if there are several places, and why in words."""
    out = console()
    first = story.steps[0]
    out.print(Text.assemble((story.message_id, "bold"), f"  {at(instant(first.at_us))}"))
    places = list(dict.fromkeys(step.endpoint for step in story.steps if step.endpoint))
    timeline = Table.grid(padding=(0, 2))
    timeline.add_column(justify="right", no_wrap=True)
    timeline.add_column(no_wrap=True)
    if len(places) > 1:
        timeline.add_column(overflow="fold")
    timeline.add_column(overflow="fold")
    previous = -1
    for step in story.steps:
        since = timedelta(microseconds=step.at_us - first.at_us)
        when = "" if step.at_us == previous else f"+{duration(since)}"
        where = [Text(step.endpoint)] if len(places) > 1 else []
        timeline.add_row(when, _kind(step), *where, _text(step))
        previous = step.at_us
    out.print(Padding(timeline, (1, 0), expand=False))
    for place in places or [""]:
        last = [step for step in story.steps if step.endpoint == place][-1]
        out.print(f"{place or story.message_id}: {_standing(last)}.")


def _places(sent: Sent) -> str:
    literal = "*" not in sent.subject and ">" not in sent.subject
    return sent.subject if literal else plural(sent.delivered_to, "endpoint")


def _heading(envelope: Envelope) -> Text:
    line = Text.assemble((envelope.id, "bold"), "  from ", (envelope.sender, "cyan"))
    if envelope.reply_to:
        line.append(f"  reply to {envelope.reply_to}")
    line.append(f"  {ago(envelope.created_at)}", style="dim")
    return line


def _payload(envelope: Envelope) -> Text:
    text = plain(msgspec.json.encode(envelope.payload).decode())
    if len(text) <= _PAYLOAD_MAX_CHARS:
        return Text(text)
    shown = Text(text[:_PAYLOAD_MAX_CHARS])
    shown.append(f" ... ({len(text):,} characters; --json shows all)", style="dim")
    return shown


def _confirmation(confirmation: Confirmation) -> Text:
    stored = "yes, until they came" if confirmation.was_stored else "no"
    return Text.assemble(
        *((confirmation.message_id, "bold"), ": confirmed by "),
        *((confirmation.recipient, "cyan"), f" (was_stored: {stored})"),
    )


def _content(heard: Heard) -> Text:
    if heard.problem:
        return styled(f"cannot be opened: {heard.problem}", "red")
    return Text(plain(msgspec.json.encode(heard.payload).decode()))


def _standing(last: HistoryEntry) -> str:
    if last.kind == "accepted" and not last.endpoint:
        return "nobody was there"
    if last.kind == "rejected" and Reason.BUDGET_EXCEEDED in last.text:
        return "refused, and kept as a dead letter"
    return _STANDING.get(last.kind, last.kind)


def _kind(step: HistoryEntry) -> Text:
    return Text(step.kind, style=_STYLE.get(step.kind, "cyan"))


def _text(step: HistoryEntry) -> Text:
    rejected = step.kind == "check" and " refused:" in step.text
    return styled(step.text, "red" if rejected else "dim" if step.kind == "check" else "")
