"""Requests to a served relay and its responses, translated from and to the forms of commands."""

from datetime import datetime, timedelta

import msgspec

from waypost.cli.results import EndpointStatus, StatsResult
from waypost.relay.inspection.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.inspection.stats import MailboxStats
from waypost.wire.envelopes import Envelope
from waypost.wire.http_bodies import BudgetRequest, EndpointInfo, NewMessage
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.payloads import encode_payload
from waypost.wire.stats_bodies import InboxStats, RelayStats


class InboxResponse(msgspec.Struct):
    """Leased messages, with the fields that commands print."""

    messages: list[Envelope]


class PeekResponse(InboxResponse):
    """Pending messages, and the counts of the inbox."""

    pending: int
    leased: int
    unreadable: list[str] = []


class DeadLetterResponse(msgspec.Struct):
    """Dead letters, or their groups."""

    total: int
    dead_letters: list[DeadLetter] = []
    groups: list[DeadLetterGroup] = []


def new_message(message: OutgoingMessage) -> NewMessage:
    """Return the request body for a message. Raises `InvalidMessage` if it cannot be JSON."""
    wish, delay = message.budget, message.delay
    return NewMessage(
        subject=message.subject,
        payload=msgspec.Raw(encode_payload(message.payload)),
        reply_to=message.reply_to,
        budget=None if wish is None else msgspec.convert(wish, BudgetRequest),
        message_id=message.message_id,
        thread=message.thread,
        delay=delay.total_seconds() if isinstance(delay, timedelta) else delay,
        deliver_at=message.deliver_at,
    )


def stats_result(url: str, stats: RelayStats) -> StatsResult:
    """Return the statistics of the relay at `url` as `stats` prints them."""
    endpoints = [_mailbox_stats(one) for one in stats.inboxes]
    stuck = [one.subject for one in stats.connected if one.stuck_since_us]
    return StatsResult(
        url=url,
        data_dir="",
        in_use_by="",
        seq=stats.seq,
        last_event_at=None,
        storage=stats.storage,
        durability=stats.durability,
        total_messages=stats.total_messages,
        by_status=stats.by_status,
        endpoints=endpoints,
        counted_since=None,
        events=stats.events,
        rejected=stats.rejected,
        connected=list(dict.fromkeys(one.subject for one in stats.connected)),
        stuck=stuck,
        breakers=stats.breakers,
        problems=stats.problems,
        findings=stats.findings,
        rejections=stats.rejections,
    )


def endpoint_statuses(
    registered: list[EndpointInfo], inboxes: list[InboxStats]
) -> list[EndpointStatus]:
    """Return endpoints in order of registration, with their counts where those are known."""
    counts = {one.subject: one for one in inboxes}

    def registration(one: EndpointInfo) -> tuple[datetime, str]:
        return one.registered_at, one.subject

    return [
        EndpointStatus(
            subject=one.subject,
            hash=one.hash,
            maildir_path=one.maildir_path,
            registered_at=one.registered_at,
            pending=inbox.pending if inbox else None,
            leased=inbox.leased if inbox else None,
            dead=inbox.dead if inbox else None,
            oldest_us=inbox.oldest_us if inbox else None,
        )
        for one in sorted(registered, key=registration)
        for inbox in [counts.get(one.subject)]
    ]


def _mailbox_stats(inbox: InboxStats) -> MailboxStats:
    return MailboxStats(
        subject=inbox.subject,
        hash=inbox.hash,
        pending=inbox.pending,
        scheduled=inbox.scheduled,
        leased=inbox.leased,
        dead=inbox.dead,
        bytes=inbox.bytes,
        pressure=inbox.pressure,
        top_senders=[(one.sender, one.messages, one.bytes) for one in inbox.senders],
        oldest_us=inbox.oldest_us,
    )
