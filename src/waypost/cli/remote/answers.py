"""Answers of a served relay as the facts that verbs print."""

from datetime import datetime

import msgspec

from waypost.cli.facts import EndpointFacts, Stats
from waypost.relay.delivery.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.inspection.stats import MailboxStats
from waypost.wire.envelopes import Envelope
from waypost.wire.http_bodies import EndpointInfo, InboxStats, RelayStats


class InboxAnswer(msgspec.Struct):
    """Messages handed out, as far as they are shown."""

    messages: list[Envelope]


class DeadLetterAnswer(msgspec.Struct):
    """Dead letters one by one, or their groups."""

    total: int
    dead_letters: list[DeadLetter] = []
    groups: list[DeadLetterGroup] = []


def stats_of(url: str, answer: RelayStats) -> Stats:
    """The numbers as `stats` prints them."""
    return Stats(
        url=url,
        data_dir="",
        in_use_by="",
        seq=answer.seq,
        last_event_at=None,
        storage=answer.storage,
        durability=answer.durability,
        total_messages=answer.total_messages,
        by_status=answer.by_status,
        endpoints=[_metrics(one) for one in answer.inboxes],
        counted_since=None,
        events=answer.events,
        rejected=answer.rejected,
        connected=[one.subject for one in answer.connected],
        problems=answer.problems,
    )


def endpoints_of(registered: list[EndpointInfo], numbers: list[InboxStats]) -> list[EndpointFacts]:
    """Endpoints in order of registration, with their numbers where those are known."""
    known = {one.subject: one for one in numbers}

    def since(one: EndpointInfo) -> tuple[datetime, str]:
        return one.registered_at, one.subject

    return [
        EndpointFacts(
            subject=one.subject,
            hash=one.hash,
            maildir_path=one.maildir_path,
            registered_at=one.registered_at,
            pending=found.pending if found else None,
            leased=found.leased if found else None,
            dead=found.dead if found else None,
        )
        for one in sorted(registered, key=since)
        for found in [known.get(one.subject)]
    ]


def _metrics(one: InboxStats) -> MailboxStats:
    return MailboxStats(
        subject=one.subject,
        hash=one.hash,
        pending=one.pending,
        leased=one.leased,
        dead=one.dead,
        bytes=one.bytes,
        pressure=one.pressure,
        top_senders=[(held.sender, held.messages, held.bytes) for held in one.senders],
    )
