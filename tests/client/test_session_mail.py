"""The session: received messages, acks and redeliveries; confirmations, signals, blocks."""

from datetime import UTC, datetime

import pytest

from tests.client.session_harness import ME, SessionHarness, message
from waypost.client.options import WITHHELD_ACKS_MAX, ClientOptions
from waypost.client.protocol.inbox import UNWRITTEN_ACKS_MAX
from waypost.client.protocol.outbox import LOSSY_MAX, ONE_WAY_MAX
from waypost.policy.errors import InvalidMessage, InvalidSubject
from waypost.wire import frames
from waypost.wire.payloads import Signal, SignalType

SIGNAL = Signal(
    type=SignalType.TYPING,
    state="busy",
    endpoint_subject=ME,
    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
)


@pytest.fixture
def harness() -> SessionHarness:
    harness = SessionHarness()
    harness.connect()
    return harness


def acked(harness: SessionHarness) -> list[str]:
    return [one for ack in harness.written() if isinstance(ack, frames.Ack) for one in ack.ids]


# --- Acks ----------------------------------------------------------------------------------------


def test_a_message_is_emitted_and_acked_only_on_request_of_the_application(
    harness: SessionHarness,
) -> None:
    arrived = message("m-1", {"x": 1})
    assert harness.receive_frame(arrived) == [arrived]
    assert harness.written() == []
    harness.session.ack("m-1")
    assert acked(harness) == ["m-1"]


def test_acks_of_many_messages_go_out_as_one_operation(harness: SessionHarness) -> None:
    for number in range(5):
        harness.receive_frame(message(f"m-{number}"))
        harness.session.ack(f"m-{number}")
    assert harness.written() == [frames.Ack(ids=[f"m-{number}" for number in range(5)])]


def test_a_lost_ack_is_repeated_without_emitting_the_message_again(harness: SessionHarness) -> None:
    harness.receive_frame(message("m-1"))
    harness.session.ack("m-1")
    harness.written()
    harness.drop()
    harness.connect()
    assert harness.receive_frame(message("m-1")) == []
    assert acked(harness) == ["m-1"]


def test_an_ack_made_while_disconnected_is_written_on_the_next_connection(
    harness: SessionHarness,
) -> None:
    harness.receive_frame(message("m-1"))
    harness.drop()
    harness.session.ack("m-1")
    harness.connect()
    assert acked(harness) == ["m-1"]


def test_a_held_message_is_not_emitted_twice(harness: SessionHarness) -> None:
    harness.receive_frame(message("m-1"))
    harness.drop()
    harness.connect()
    assert harness.receive_frame(message("m-1")) == []
    assert acked(harness) == []
    harness.session.ack("m-1")
    assert acked(harness) == ["m-1"]


def test_acking_twice_writes_one_ack(harness: SessionHarness) -> None:
    harness.receive_frame(message("m-1"))
    for _ in range(2):
        harness.session.ack("m-1")
        harness.session.nack("m-1", 0.0)
    assert harness.written() == [frames.Ack(ids=["m-1"])]


def test_an_unknown_message_cannot_be_acked(harness: SessionHarness) -> None:
    harness.session.ack("m-1")
    assert harness.written() == []


def test_a_nacked_message_is_emitted_again(harness: SessionHarness) -> None:
    arrived = message("m-1")
    harness.receive_frame(arrived)
    harness.session.nack("m-1", 2.5)
    assert harness.written() == [frames.Nack(ids=["m-1"], delay=2.5)]
    assert harness.receive_frame(arrived) == [arrived]


def test_a_released_message_is_emitted_again(harness: SessionHarness) -> None:
    arrived = message("m-1")
    harness.receive_frame(arrived)
    harness.session.release("m-1")
    harness.drop()
    harness.connect()
    assert harness.receive_frame(arrived) == [arrived]


def test_a_nack_is_not_kept_for_another_connection(harness: SessionHarness) -> None:
    harness.receive_frame(message("m-1"))
    harness.session.nack("m-1", 0.0)
    harness.drop()
    harness.connect()
    assert harness.written() == []


def test_a_limited_number_of_ids_is_remembered_and_the_oldest_is_dropped_first() -> None:
    harness = SessionHarness(ClientOptions(remembered_max_ids=2))
    harness.connect()
    for name in ("m-1", "m-2", "m-3"):
        harness.receive_frame(message(name))
        harness.session.ack(name)
    assert harness.receive_frame(message("m-3")) == []
    assert harness.receive_frame(message("m-2")) == []
    assert harness.receive_frame(message("m-1")) == [message("m-1")]


def test_acks_that_the_relay_does_not_read_are_bounded_and_the_newest_are_kept(
    harness: SessionHarness,
) -> None:
    for number in range(UNWRITTEN_ACKS_MAX + 10):
        harness.receive_frame(message(f"m-{number}"))
        harness.session.ack(f"m-{number}")
    assert acked(harness) == [f"m-{10 + number}" for number in range(UNWRITTEN_ACKS_MAX)]


def test_nacks_that_a_relay_provokes_and_does_not_read_are_bounded(
    harness: SessionHarness,
) -> None:
    for number in range(0, ONE_WAY_MAX + 1000, 1000):
        unasked = [message(f"m-{number + one}") for one in range(1000)]
        assert harness.receive_frame(frames.FetchedMessages(ref=7, messages=unasked)) == []
    assert len(harness.written()) == ONE_WAY_MAX


# --- The block list ------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["agent.spam", "agent.*", "agent.>"])
def test_messages_of_a_blocked_sender_are_counted_not_emitted_and_acked_with_the_next(
    harness: SessionHarness, pattern: str
) -> None:
    harness.receive_frame(message("m-0", sender="agent.friend"))
    harness.session.block_list.add(pattern)
    assert harness.receive_frame(message("m-1", sender="agent.spam")) == []
    assert harness.session.block_list.count == 1
    assert not harness.session.has_unwritten
    harness.session.ack("m-0")
    assert acked(harness) == ["m-0", "m-1"]


def test_a_blocked_message_that_is_delivered_again_is_acked_at_once(
    harness: SessionHarness,
) -> None:
    harness.session.block_list.add("agent.spam")
    harness.receive_frame(message("m-1", sender="agent.spam"))
    assert harness.receive_frame(message("m-1", sender="agent.spam")) == []
    assert acked(harness) == ["m-1"]


def test_few_blocked_messages_wait_for_their_ack(harness: SessionHarness) -> None:
    harness.session.block_list.add("agent.spam")
    for number in range(WITHHELD_ACKS_MAX + 2):
        harness.receive_frame(message(f"m-{number}", sender="agent.spam"))
    assert acked(harness) == ["m-0", "m-1"]


def test_a_block_does_not_affect_other_senders(harness: SessionHarness) -> None:
    harness.session.block_list.add("agent.spam")
    assert harness.receive_frame(message("m-1", sender="agent.friend")) != []
    assert harness.session.block_list.count == 0


def test_messages_of_an_unblocked_sender_are_emitted_again(harness: SessionHarness) -> None:
    for pattern in ("agent.spam", "agent.*"):
        harness.session.block_list.add(pattern)
        harness.session.block_list.remove(pattern)
    assert harness.receive_frame(message("m-1", sender="agent.spam")) != []
    assert harness.session.block_list.patterns() == []


def test_a_block_list_accepts_only_patterns(harness: SessionHarness) -> None:
    with pytest.raises(InvalidSubject):
        harness.session.block_list.add("agent..spam")


# --- Confirmations -------------------------------------------------------------------------------


def confirm(message_id: str, kept_as: str | None = None) -> frames.DeliveryConfirm:
    return frames.DeliveryConfirm(
        message_id=message_id, recipient="agent.other", was_stored=True, id=kept_as
    )


def test_a_confirmation_is_emitted(harness: SessionHarness) -> None:
    assert harness.receive_frame(confirm("m-1")) == [confirm("m-1")]
    assert harness.written() == []


def test_a_stored_confirmation_is_acked(harness: SessionHarness) -> None:
    assert harness.receive_frame(confirm("m-1"), confirm("m-2", "kept-1")) == [
        confirm("m-1"),
        confirm("m-2", "kept-1"),
    ]
    assert acked(harness) == ["kept-1"]


def test_a_stored_confirmation_delivered_again_is_acked_again_and_emitted_once(
    harness: SessionHarness,
) -> None:
    kept = (confirm("m-1"), confirm("m-2", "kept-1"))
    harness.receive_frame(*kept)
    harness.written()
    harness.drop()
    harness.connect()
    assert harness.receive_frame(*kept) == []
    assert acked(harness) == ["kept-1"]


def test_several_confirmations_in_one_operation_are_emitted_once_each_and_acked(
    harness: SessionHarness,
) -> None:
    several = frames.DeliveryConfirms(
        recipient="agent.other", confirmed=[("m-1", True), ("m-2", True)], id="kept-1"
    )
    harness.receive_frame(confirm("m-1"))
    assert harness.receive_frame(several) == [confirm("m-2")]
    assert acked(harness) == ["kept-1"]


def test_every_recipient_of_one_message_confirms_it(harness: SessionHarness) -> None:
    others = [
        frames.DeliveryConfirm(message_id="m-1", recipient=name, was_stored=False)
        for name in ("agent.a", "agent.b")
    ]
    assert harness.receive_frame(*others) == others


# --- Signals and errors --------------------------------------------------------------------------


def test_a_signal_is_written_only_while_connected(harness: SessionHarness) -> None:
    assert harness.session.signal("agent.other", SIGNAL)
    assert harness.written() == [frames.SendSignal(subject="agent.other", signal=SIGNAL)]
    assert harness.session.signal("agent.other", SIGNAL)
    harness.drop()
    assert not harness.session.signal("agent.other", SIGNAL)
    harness.connect()
    assert harness.written() == []


def test_unwritten_signals_are_dropped_past_a_limit(harness: SessionHarness) -> None:
    went = [harness.session.signal("agent.other", SIGNAL) for _ in range(LOSSY_MAX + 1)]
    assert went == [True] * LOSSY_MAX + [False]


def test_an_invalid_signal_is_rejected(harness: SessionHarness) -> None:
    with pytest.raises(InvalidMessage):
        harness.session.signal("agent.other", "ring")  # type: ignore[arg-type]


def test_a_signal_is_emitted_unless_its_sender_is_blocked(harness: SessionHarness) -> None:
    signalled = frames.Signalled(subject=ME, signal=SIGNAL, sender="agent.spam")
    assert harness.receive_frame(signalled) == [signalled]
    harness.session.block_list.add("agent.spam")
    assert harness.receive_frame(signalled) == []


def test_an_error_without_a_ref_is_emitted(harness: SessionHarness) -> None:
    assert harness.receive_frame(frames.Error(error="hm")) == [frames.Error(error="hm")]
