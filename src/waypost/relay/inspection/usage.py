"""Usage of one inbox: its senders with their tiers, and the quotas of each tier."""

import heapq

from waypost.policy.settings import Settings
from waypost.policy.tiers import Tier
from waypost.relay.inspection.stats import pressure_of
from waypost.relay.state.mailbox import Mailbox
from waypost.relay.state.relay_state import RelayState
from waypost.wire.stats_bodies import InboxUsage, SenderUsage, TierUsage


def measure_usage(
    state: RelayState, mailbox: Mailbox, settings: Settings, now_us: int, senders_shown: int
) -> InboxUsage:
    """Return the usage of one inbox at `now_us`; its agent counts as not connected."""
    senders = _senders(state, mailbox, settings, now_us // 1000)
    leased = mailbox.leased_count
    cap, qos = settings.backpressure, settings.qos
    return InboxUsage(
        at_us=now_us,
        subject=mailbox.subject,
        hash=mailbox.hash,
        registered=mailbox.registered,
        connected=False,
        pending=mailbox.pending_count,
        scheduled=mailbox.scheduled_count,
        leased=leased,
        dead=len(mailbox.dead),
        bytes=mailbox.occupancy.bytes,
        pressure=pressure_of(mailbox, settings),
        messages_max=cap.max_mailbox_size if cap.enabled else None,
        bytes_max=qos.inbox_max_bytes if qos.enabled else None,
        oldest_us=mailbox.oldest_us,
        senders_total=len(senders),
        senders=heapq.nsmallest(senders_shown, senders, key=lambda one: (-one.bytes, one.sender)),
        tiers=[_tier(settings, tier, senders) for tier in Tier],
    )


def _senders(
    state: RelayState, mailbox: Mailbox, settings: Settings, now_ms: int
) -> list[SenderUsage]:
    window_ms = settings.qos.bidirectional_window_ms
    return [
        SenderUsage(
            sender=sender,
            messages=messages,
            bytes=held,
            tier=state.tier(sender, mailbox.subject, now_ms, window_ms),
        )
        for sender, (messages, held) in mailbox.occupancy.by_sender.items()
    ]


def _tier(settings: Settings, tier: Tier, senders: list[SenderUsage]) -> TierUsage:
    qos, members = settings.qos, [one for one in senders if one.tier == tier]
    limits = qos.limits(tier) if qos.enabled else None
    return TierUsage(
        tier=tier,
        senders=len(members),
        messages=sum(one.messages for one in members),
        bytes=sum(one.bytes for one in members),
        max_messages=None if limits is None else limits.max_envelopes,
        max_bytes=None if limits is None else limits.max_bytes,
    )
