"""Messages of the relay itself: they have room beside the caps of a mailbox."""

from tests.policy.test_admission import NOW, Arriving
from waypost.policy.admission import DeliveryVerdict, admit_delivery, make_room
from waypost.policy.backpressure import BackpressureConfig
from waypost.policy.breakers import CircuitBreakers
from waypost.policy.budgets import create_default_budget
from waypost.policy.occupancy import Occupancy
from waypost.policy.reasons import Reason
from waypost.policy.settings import Settings
from waypost.policy.tiers import QosConfig, Tier, TierLimits


def arrival(sender: str, size: int) -> Arriving:
    return Arriving("m", sender, "agent.in", create_default_budget(NOW), size, Tier.ACTIVE)


def of_relay(mailbox: Occupancy, room: TierLimits | None, size: int = 100) -> DeliveryVerdict:
    """Return the verdict on a message of the relay for a small mailbox."""
    settings = Settings(
        backpressure=BackpressureConfig(max_mailbox_size=3),
        qos=QosConfig(enabled=True, tier3=TierLimits(1, 50), inbox_max_bytes=300),
        relay_messages=room,
    )
    return admit_delivery(arrival("_relay", size), mailbox, CircuitBreakers(), settings, NOW)


def test_messages_of_the_relay_have_room_beside_the_caps_of_a_mailbox() -> None:
    mailbox = Occupancy()
    for _ in range(3):
        mailbox.add("agent.c", 100, Tier.ACTIVE)
    assert of_relay(mailbox, None).reason is Reason.BACKPRESSURE
    room = TierLimits(2, 250)
    for number in range(2):
        verdict = of_relay(mailbox, room)
        assert (verdict.reason, verdict.evict_bytes, verdict.quota_count) == (None, 0, number)
        mailbox.add("_relay", 100, Tier.ACTIVE)
    full = of_relay(mailbox, room)
    assert (full.reason, full.detail) == (
        Reason.BACKPRESSURE,
        "backpressure: 2 messages of the relay are pending in this mailbox",
    )
    mailbox.remove_all([arrival("_relay", 100)])
    assert of_relay(mailbox, room, size=150).reason is None
    assert of_relay(mailbox, room, size=151).reason is Reason.BACKPRESSURE


def test_messages_of_the_relay_are_not_evicted_where_they_have_room_of_their_own() -> None:
    pending = [("_relay", 100), ("agent.c", 50)]
    tiers = {"_relay": 3, "agent.c": 3}
    verdict = DeliveryVerdict(evict_bytes=50)
    breakers, arriving = CircuitBreakers(), arrival("agent.d", 100)
    assert make_room(verdict, arriving, pending, tiers, breakers, spare_relay=True) == [1]
    assert make_room(verdict, arriving, pending, tiers, breakers) == [0]
