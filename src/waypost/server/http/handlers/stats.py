"""What an operator wants to know at a glance: mailboxes and who fills them, breakers, agents."""

from collections.abc import Mapping
from typing import Annotated

import msgspec

from waypost.policy.breakers import CircuitBreakerState
from waypost.policy.tiers import Tier
from waypost.relay.inspection.stats import EndpointMetrics
from waypost.relay.relay import Relay
from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply


class StatsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many inboxes to show."""

    inboxes: Annotated[int, msgspec.Meta(ge=0, le=10_000)] = 100


class SenderUsage(msgspec.Struct, kw_only=True):
    """What one sender has waiting in an inbox, and how well the two know each other."""

    sender: str
    messages: int
    bytes: int
    tier: Tier


class InboxUsage(msgspec.Struct, kw_only=True):
    """One inbox; `senders` are those with the most bytes in it. `connected`: its agent is here."""

    subject: str
    hash: str
    pending: int
    leased: int
    dead: int
    bytes: int
    pressure: float
    connected: bool
    senders: list[SenderUsage]


class ConnectedAgent(msgspec.Struct, kw_only=True):
    """An agent that is connected since `since_us` and gets its messages by `push` or `pull`."""

    subject: str
    since_us: int
    receive: str


class Stats(msgspec.Struct, kw_only=True):
    """`by_status` counts messages now; `events` and `rejected` what happened since the start.

    `inboxes` are the fullest, of `inboxes_total`.
    """

    at_us: int
    seq: int
    commits: int
    total_messages: int
    by_status: Mapping[str, int]
    events: Mapping[str, int]
    rejected: Mapping[str, int]
    inboxes: list[InboxUsage]
    inboxes_total: int
    breakers: Mapping[str, CircuitBreakerState]
    connected: list[ConnectedAgent]
    senders_tracked: int
    storage: str
    durability: str
    storage_full: bool
    problems: list[str]


async def get_stats(call: Call[StatsQuery, None]) -> Reply:
    """Everything at one instant."""
    services = call.services
    relay = services.relay
    connected = [
        ConnectedAgent(subject=one.subject, since_us=one.since_us, receive=one.receive)
        for one in services.hub.connected()
    ]
    here = {one.subject for one in connected}
    numbers = relay.metrics()
    now_us = relay.parts.ledger.now_us()
    fullest = sorted(numbers.endpoints, key=lambda one: (-one.pending - one.leased, one.subject))
    shown = fullest[: call.parameters.inboxes]
    return Reply(
        Stats(
            at_us=now_us,
            seq=numbers.seq,
            commits=numbers.commits,
            total_messages=numbers.total_messages,
            by_status=numbers.by_status,
            events=numbers.events,
            rejected=numbers.rejected,
            inboxes=[_usage(relay, one, here, now_us // 1000) for one in shown],
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


def _usage(relay: Relay, inbox: EndpointMetrics, here: set[str], now_ms: int) -> InboxUsage:
    tier, window_ms = relay.parts.ledger.state.tier, relay.settings.qos.bidirectional_window_ms
    return InboxUsage(
        subject=inbox.subject,
        hash=inbox.hash,
        pending=inbox.pending,
        leased=inbox.leased,
        dead=inbox.dead,
        bytes=inbox.bytes,
        pressure=inbox.pressure,
        connected=inbox.subject in here,
        senders=[
            SenderUsage(
                sender=sender,
                messages=messages,
                bytes=held,
                tier=tier(sender, inbox.subject, now_ms, window_ms),
            )
            for sender, messages, held in inbox.top_senders
        ],
    )


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
        answer=Answer(Stats),
    ),
)
