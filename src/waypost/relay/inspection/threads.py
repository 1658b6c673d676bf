"""A thread as a whole: its messages in order, and the outcome of each.

The arrivals of a thread and the events of each message are found by the journal's index, at any age
that the journal has.
"""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from waypost.policy.bounds import thread_max_messages
from waypost.policy.reasons import DEAD_LETTERED
from waypost.policy.schedules import is_ahead
from waypost.policy.subjects import is_literal
from waypost.relay.inspection.search import FoundMessage, Outcome, SearchQuery, matches
from waypost.relay.journal.history import Arrival, find_events, find_thread
from waypost.wire.events import (
    Accepted,
    Acked,
    AnyEvent,
    Cancelled,
    Evicted,
    Expired,
    Failed,
    Leased,
    Queued,
    Redriven,
    Rejected,
    Returned,
)
from waypost.wire.history_bodies import Thread, ThreadMessage

_UNSEEN = ("scheduled", "cancelled")
"""Outcomes of messages of which the recipient does not know yet, or never will."""


def read_thread(directory: Path, thread: str) -> Thread:
    """Read a thread from the journal in `directory`, which may be in use."""

    def find(message_id: str) -> Iterable[AnyEvent]:
        return find_events(directory, message_id)

    return describe_thread(thread, find_thread(directory, thread), find)


def describe_thread(
    thread: str,
    arrivals: Sequence[Arrival],
    find: Callable[[str], Iterable[AnyEvent]],
    agent: str | None = None,
) -> Thread:
    """Return the thread with these arrivals; `find` returns the events of a message.

    With `agent`, only the messages it sent or received, with no more than it may know of them.
    """
    shown = [
        one
        for one in arrivals[:thread_max_messages]
        if agent is None or agent in (one.sender, one.endpoint)
    ]
    messages = [_message(one, find, agent) for one in shown]
    if agent is not None:
        messages = [one for one in messages if one.sender == agent or one.outcome not in _UNSEEN]
    return Thread(thread=thread, messages=messages, more=len(arrivals) > thread_max_messages)


def _message(
    arrival: Arrival, find: Callable[[str], Iterable[AnyEvent]], agent: str | None
) -> ThreadMessage:
    outcome, reason = outcome_of(arrival, find(arrival.id))
    endpoint = arrival.endpoint or arrival.subject
    if agent is not None:
        reason = str(arrival.reason) if isinstance(arrival, Rejected) else ""
        if endpoint != agent and not is_literal(arrival.subject):
            endpoint = arrival.subject
    return ThreadMessage(
        id=arrival.id,
        at_us=arrival.at_us,
        sender=arrival.sender,
        endpoint=endpoint,
        parent=arrival.parent,
        answer=arrival.answer,
        calls_left=arrival.budget.call_budget_remaining,
        outcome=outcome,
        reason=reason,
    )


def outcome_of(arrival: Arrival, events: Iterable[AnyEvent]) -> tuple[Outcome, str]:
    """Return the outcome of an arrival after `events` of its id, and the reason if it has one."""
    outcome = _stored(arrival, arrival.at_us) if arrival.endpoint else "gone"  # it had no recipient
    reason = ""
    if isinstance(arrival, Rejected):
        reason = arrival.detail or str(arrival.reason)
        if arrival.reason not in DEAD_LETTERED or not arrival.kept:
            return "rejected", reason
        outcome = "dead"
    for event in events:
        if event.seq <= arrival.seq or getattr(event, "endpoint", "") != arrival.endpoint:
            continue
        match event:
            case Accepted() | Rejected():
                break  # the same id again, later
            case Leased():
                outcome, reason = "leased", ""
            case Returned(reason=why):
                outcome, reason = "pending", why
            case Redriven() | Queued():
                outcome, reason = _stored(arrival, event.at_us), ""
            case Failed(reason=why) | Evicted(reason=why):
                outcome, reason = "dead", why
            case Acked() | Cancelled():
                outcome, reason = ("acked" if isinstance(event, Acked) else "cancelled"), ""
            case Expired(was=was, reason=why):
                outcome, reason = ("purged" if was == "dead" else "expired"), why
            case _:
                pass
    return outcome, reason


def _stored(arrival: Arrival, at_us: int) -> Outcome:
    """Return the outcome of an arrival that was stored or queued at `at_us`, and no more since."""
    return "scheduled" if is_ahead(arrival.due_us, at_us // 1000) else "pending"


def search_thread(
    query: SearchQuery, arrivals: Sequence[Arrival], find: Callable[[str], Iterable[AnyEvent]]
) -> list[FoundMessage]:
    """Return the messages of a thread that match `query`, the newest first."""
    found: list[FoundMessage] = []
    for arrival in reversed(arrivals[:thread_max_messages]):
        outcome, reason = outcome_of(arrival, find(arrival.id))
        one = FoundMessage(
            id=arrival.id,
            at_us=arrival.at_us,
            sender=arrival.sender,
            endpoint=arrival.endpoint or arrival.subject,
            bytes=arrival.size,
            outcome=outcome,
            reason=reason,
            seq=arrival.seq,
        )
        if matches(one, query):
            found.append(one)
    return found
