"""Asserts that a relay's state, its journal and its callers agree."""

from tests.faults.plain_journal import Sum
from tests.model_based.choices import ENDPOINTS
from tests.model_based.model import Model
from waypost import Relay


def assert_memory_is(relay: Relay, total: Sum, now_ms: int) -> None:
    """Assert that the state in memory equals the sum of the journal."""
    state = relay._runtime.ledger.state
    boxes = state.mailboxes.values()
    assert {box.subject: list(box.live) for box in boxes if box.live} == total.order()
    dead = {box.subject: {one.id: one.reason for one in box.dead.values()} for box in boxes}
    assert {name: found for name, found in dead.items() if found} == total.dead()
    leased = {(name, one) for name, box in total.boxes.items() for one in box.leased}
    assert {(one.endpoint, one.id) for one in state.leased()} == leased
    later = {(name, one) for name, box in total.boxes.items() for one in box.scheduled}
    assert {(one.endpoint, one.id) for one in state.scheduled.of(None)} == later
    assert len(state.scheduled) == len(later)
    for box in boxes:
        held = total.box(box.subject).usage()
        assert box.occupancy.by_sender == held
        assert box.occupancy.depth == sum(count for count, _ in held.values())
        assert box.occupancy.bytes == sum(size for _, size in held.values())
        assert box.leased_count == len(total.box(box.subject).leased)
        assert box.registered == (box.subject in total.endpoints)
        waiting = [one.id for one in box.pending()]
        later = total.box(box.subject).scheduled
        assert {one.id for one in box.scheduled()} == later
        assert box.scheduled_count == len(later)
        assert waiting == [
            one for one in box.live if (box.subject, one) not in leased and one not in later
        ]
    assert {box.subject: box.since_us for box in state.registered()} == total.endpoints
    assert {pair: state.last_seen.get(pair) for pair in total.last_seen} == total.last_seen
    for sender_and_id, (at_us, stored) in total.first_results.items():
        known = state.duplicates.get(sender_and_id)
        if known is not None:  # it may be past its window
            assert (known.at_us, known.result().delivered_to) == (at_us, len(stored))
    assert_windows_are(relay, total, now_ms)


def assert_windows_are(relay: Relay, total: Sum, now_ms: int) -> None:
    """Assert that the rate windows hold the publishes of the last window."""
    window_ms = relay.settings.rate_limit.window_secs * 1000
    sent = {
        sender: [at_ms for at_ms in instants if at_ms > now_ms - window_ms]
        for sender, instants in total.sent_ms.items()
    }
    found = relay._runtime.ledger.state.windows.snapshot(now_ms, window_ms)
    assert found == {sender: instants for sender, instants in sent.items() if instants}


def assert_callers_know(model: Model, total: Sum, now_ms: int) -> None:
    """Assert that callers can derive every mailbox and its order from their results."""
    for endpoint in ENDPOINTS:
        box = total.box(endpoint)
        live = [
            (name, event["sender"])
            for name, event in box.live.items()
            if name in box.leased or event["budget"]["ttl"] >= now_ms
        ]
        assert live == [(message.id, message.sender) for message in model.box(endpoint)]
        dead = {name: box.arrival(name)["sender"] for name in box.dead}
        found = model.dead.get(endpoint, {}).values()
        assert dead == {message.id: message.sender for message in found}


def order_at(endpoint: str, handled: list[tuple[str, str]]) -> list[str]:
    """Return the ids handled at one endpoint, in order."""
    return [message_id for where, message_id in handled if where == endpoint]
