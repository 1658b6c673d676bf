"""One inbox, closely: who has how much waiting in it, in which tier, and how much each may have."""

import heapq

from waypost.policy.backpressure import check_backpressure
from waypost.policy.tiers import Tier
from waypost.relay.relay import Relay
from waypost.relay.state.mailbox import Mailbox, MessageState
from waypost.server.context import ServerContext
from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.server.http.handlers.endpoints import EndpointNamed
from waypost.wire.http_bodies import InboxUsage, SenderUsage, TierUsage

SENDERS_MAX = 200


async def get_usage(call: Call[EndpointNamed, None]) -> Reply:
    """An inbox and its senders."""
    relay = call.services.relay
    mailbox = relay.parts.leases.mailbox(call.parameters.subject)
    return Reply(_detail(call.services, mailbox))


def _detail(services: ServerContext, mailbox: Mailbox) -> InboxUsage:
    relay = services.relay
    settings, now_us = relay.settings, relay.parts.ledger.now_us()
    senders = _senders(relay, mailbox, now_us // 1000)
    leased = sum(one.state is MessageState.LEASED for one in mailbox.live.values())
    cap, quotas = settings.backpressure, settings.qos.enabled
    return InboxUsage(
        at_us=now_us,
        subject=mailbox.subject,
        hash=mailbox.hash,
        registered=mailbox.registered,
        connected=any(one.subject == mailbox.subject for one in services.hub.connected()),
        pending=mailbox.occupancy.depth - leased,
        leased=leased,
        dead=len(mailbox.dead),
        bytes=mailbox.occupancy.bytes,
        pressure=check_backpressure(mailbox.occupancy.depth, cap).pressure,
        messages_max=cap.max_mailbox_size if cap.enabled else None,
        bytes_max=settings.qos.inbox_max_bytes if quotas else None,
        oldest_us=min((one.at_us for one in mailbox.pending()), default=None),
        senders_total=len(senders),
        senders=heapq.nsmallest(SENDERS_MAX, senders, key=lambda one: (-one.bytes, one.sender)),
        tiers=[_tier(relay, tier, senders) for tier in Tier],
    )


def _senders(relay: Relay, mailbox: Mailbox, now_ms: int) -> list[SenderUsage]:
    tier, window_ms = relay.parts.ledger.state.tier, relay.settings.qos.bidirectional_window_ms
    return [
        SenderUsage(
            sender=sender,
            messages=messages,
            bytes=held,
            tier=tier(sender, mailbox.subject, now_ms, window_ms),
        )
        for sender, (messages, held) in mailbox.occupancy.by_sender.items()
    ]


def _tier(relay: Relay, tier: Tier, senders: list[SenderUsage]) -> TierUsage:
    qos, mine = relay.settings.qos, [one for one in senders if one.tier == tier]
    limits = qos.limits(tier) if qos.enabled else None
    return TierUsage(
        tier=tier,
        senders=len(mine),
        messages=sum(one.messages for one in mine),
        bytes=sum(one.bytes for one in mine),
        max_messages=None if limits is None else limits.max_envelopes,
        max_bytes=None if limits is None else limits.max_bytes,
    )


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/endpoints/{subject}/usage",
        access=Access.OPERATOR,
        summary="One inbox and who fills it",
        description="How full it is, its senders with their tiers, and the limits of each tier.",
        tag="endpoints",
        handler=get_usage,
        parameters=EndpointNamed,
        body=NO_BODY,
        answer=Answer(InboxUsage),
    ),
)
