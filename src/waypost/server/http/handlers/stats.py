"""What an operator wants to know at a glance: mailboxes and who fills them, breakers, agents."""

from typing import Annotated, Literal

import msgspec

from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.stats import MailboxStats
from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.server.http.errors import HttpError
from waypost.server.live.sampler import Topic
from waypost.server.live.sse import MEDIA_TYPE
from waypost.wire.http_bodies import AgentConnection, InboxStats, RelayStats, SenderUsage


class StatsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many inboxes to show."""

    inboxes: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 100


class LiveQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What to show. `once`: how it is now, and no more."""

    show: Topic = "numbers"
    once: bool = False


class LiveEvent(msgspec.Struct, kw_only=True):
    """One event of the stream; `data` is JSON, its fields depend on `event`."""

    event: Literal["history", "sample", "standing", "breakers", "rows"]
    data: str


async def get_stats(call: Call[StatsQuery, None]) -> Reply:
    """Everything at one instant."""
    context = call.context
    relay = context.relay
    connected = [
        AgentConnection(subject=one.subject, since_us=one.since_us, receive=one.receive)
        for one in context.hub.connected()
    ]
    here = {one.subject for one in connected}
    inspector, numbers = relay.inspect(), relay.metrics()
    now_us = relay.now_us()
    fullest = sorted(numbers.endpoints, key=lambda one: (-one.pending - one.leased, one.subject))
    shown = fullest[: call.parameters.inboxes]
    return Reply(
        RelayStats(
            at_us=now_us,
            seq=numbers.seq,
            commits=numbers.commits,
            total_messages=numbers.total_messages,
            by_status=numbers.by_status,
            events=numbers.events,
            rejected=numbers.rejected,
            inboxes=[_inbox(inspector, one, here, now_us // 1000) for one in shown],
            inboxes_total=len(fullest),
            breakers=numbers.breakers,
            connected=connected,
            senders_tracked=numbers.senders_tracked,
            storage=numbers.storage,
            durability=numbers.durability,
            storage_full=numbers.storage_full,
            problems=numbers.problems,
        )
    )


def _inbox(
    inspector: Inspector, inbox: MailboxStats, connected: set[str], now_ms: int
) -> InboxStats:
    return InboxStats(
        subject=inbox.subject,
        hash=inbox.hash,
        pending=inbox.pending,
        leased=inbox.leased,
        dead=inbox.dead,
        bytes=inbox.bytes,
        pressure=inbox.pressure,
        connected=inbox.subject in connected,
        senders=[
            SenderUsage(
                sender=sender,
                messages=messages,
                bytes=held,
                tier=inspector.tier(sender, inbox.subject, now_ms),
            )
            for sender, messages, held in inbox.top_senders
        ],
    )


async def watch(call: Call[LiveQuery, None]) -> Reply:
    """A stream of events."""
    sampler, wanted = call.context.sampler, call.parameters
    if sampler.is_full:
        raise HttpError(503, "too many are watching; close another view first", reason="full")
    return Reply(sampler.stream(wanted.show, once=wanted.once), media_type=MEDIA_TYPE)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/stats",
        access=Access.OPERATOR,
        summary="Numbers and problems at a glance",
        description=(
            "Messages, refusals, the fullest inboxes with the senders that fill them and their"
            " tiers, circuit breakers that are not at rest, connected agents, and problems."
        ),
        tag="stats",
        handler=get_stats,
        parameters=StatsQuery,
        body=NO_BODY,
        answer=Answer(RelayStats),
    ),
    Operation(
        method="GET",
        path="/v1/live",
        access=Access.OPERATOR,
        summary="Watch the relay",
        description=(
            "Server-sent events, one or more a second. `numbers`: `history` (up to ten minutes of"
            " samples), then `sample`, `standing` and `breakers`. `inboxes`, `agents`: `rows`, all"
            " of them first, then those that change. A reader that is too slow misses some and is"
            " told everything again. With `once=true` it ends after the first of each."
        ),
        tag="stats",
        handler=watch,
        parameters=LiveQuery,
        body=NO_BODY,
        answer=Answer(LiveEvent, "A stream that ends when either side has enough.", MEDIA_TYPE),
    ),
)
