"""Statistics of the relay: one response, or a live stream."""

from typing import Annotated, Literal

import msgspec

from waypost.relay.inspection.inspector import Inspector
from waypost.relay.inspection.stats import MailboxStats
from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.server.http.errors import HttpError
from waypost.server.live.sampler import Topic
from waypost.server.live.sse import MEDIA_TYPE
from waypost.wire.breaker_bodies import describe_breaker
from waypost.wire.stats_bodies import AgentConnection, InboxStats, RelayStats, SenderUsage


class StatsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The number of inboxes to return."""

    inboxes: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 100


class LiveQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The topic of a stream; with `once`, only its snapshot."""

    show: Topic = "numbers"
    once: bool = False


class LiveEvent(msgspec.Struct, kw_only=True):
    """One event of the stream; `data` is JSON whose fields depend on `event`."""

    event: Literal["history", "sample", "standing", "breakers", "rows"]
    data: str


async def get_stats(call: Call[StatsQuery, None]) -> Reply:
    """Return statistics of one instant."""
    context = call.context
    relay = context.relay
    connected = [
        AgentConnection(
            subject=one.subject,
            since_us=one.since_us,
            receive=one.receive,
            shared=one.shared,
            unconfirmed=one.unconfirmed,
            stuck_since_us=one.stuck_since_us,
        )
        for one in context.hub.connected()
    ]
    subjects = {one.subject for one in connected}
    inspector, survey = relay.inspect(), await context.sampler.survey()
    fullest = [one.subject for one in survey.fullest[: call.parameters.inboxes]]
    metrics = await inspector.metrics_of(fullest, survey.totals)
    status, now_us = context.sampler.status(), relay.now_us()
    return Reply(
        RelayStats(
            at_us=now_us,
            seq=metrics.seq,
            commits=metrics.commits,
            total_messages=metrics.total_messages,
            by_status=metrics.by_status,
            events=metrics.events,
            rejected=metrics.rejected,
            inboxes=[_inbox(inspector, one, subjects, now_us // 1000) for one in metrics.endpoints],
            inboxes_total=survey.mailboxes,
            breakers={name: describe_breaker(one) for name, one in metrics.breakers.items()},
            qos=relay.settings.qos,
            connected=connected,
            senders_tracked=metrics.senders_tracked,
            storage=metrics.storage,
            durability=metrics.durability,
            storage_full=metrics.storage_full,
            problems=metrics.problems,
            findings=status.findings,
            rejections=status.rejections,
            node=status.node,
            public_key=context.public_key,
        )
    )


def _inbox(
    inspector: Inspector, inbox: MailboxStats, connected: set[str], now_ms: int
) -> InboxStats:
    return InboxStats(
        subject=inbox.subject,
        hash=inbox.hash,
        pending=inbox.pending,
        scheduled=inbox.scheduled,
        leased=inbox.leased,
        dead=inbox.dead,
        bytes=inbox.bytes,
        pressure=inbox.pressure,
        oldest_us=inbox.oldest_us,
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
    """Stream live statistics."""
    sampler, query = call.context.sampler, call.parameters
    if sampler.is_full:
        raise HttpError(503, "too many viewers: close another dashboard first", reason="full")
    return Reply(sampler.stream(query.show, once=query.once), media_type=MEDIA_TYPE)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/stats",
        access=Access.OPERATOR,
        summary="Statistics",
        description=(
            "What to look at, messages, rejections, the fullest inboxes with their largest senders"
            " and tiers, circuit breakers that are not at rest, the quotas in force, connected"
            " agents, and problems."
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
        summary="Live statistics",
        description=(
            "Server-sent events, one or more a second. `numbers`: `history` (up to ten minutes of"
            " samples), then `sample`, `standing` and `breakers`. `inboxes`, `agents`: `rows`, all"
            " of them first, then those that change. A slow reader misses events and gets a new"
            " snapshot. With `once=true` the stream ends after the snapshot."
        ),
        tag="stats",
        handler=watch,
        parameters=LiveQuery,
        body=NO_BODY,
        answer=Answer(LiveEvent, "A stream until either side disconnects.", MEDIA_TYPE),
    ),
)
