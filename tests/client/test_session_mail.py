"""The session: mail that arrives, is answered, arrives again; confirmations, signals, blocks."""

from datetime import UTC, datetime

import pytest

from tests.client.session_harness import ME, Talk, message
from waypost.client.options import ClientOptions
from waypost.client.protocol.outbox import LOSSY_MAX
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
def talk() -> Talk:
    talk = Talk()
    talk.connect()
    return talk


def acked(talk: Talk) -> list[str]:
    return [one for ack in talk.written() if isinstance(ack, frames.Ack) for one in ack.ids]


# --- Acks ----------------------------------------------------------------------------------------


def test_a_message_is_told_and_confirmed_only_when_the_application_says_so(talk: Talk) -> None:
    arrived = message("m-1", {"x": 1})
    assert talk.hear(arrived) == [arrived]
    assert talk.written() == []
    talk.session.ack("m-1")
    assert acked(talk) == ["m-1"]


def test_acks_of_many_messages_go_out_as_one_operation(talk: Talk) -> None:
    for number in range(5):
        talk.hear(message(f"m-{number}"))
        talk.session.ack(f"m-{number}")
    assert talk.written() == [frames.Ack(ids=[f"m-{number}" for number in range(5)])]


def test_an_ack_that_was_lost_is_given_again_without_telling_the_application(talk: Talk) -> None:
    talk.hear(message("m-1"))
    talk.session.ack("m-1")
    talk.written()
    talk.drop()
    talk.connect()
    assert talk.hear(message("m-1")) == []
    assert acked(talk) == ["m-1"]


def test_an_ack_made_while_away_is_written_at_the_next_connection(talk: Talk) -> None:
    talk.hear(message("m-1"))
    talk.drop()
    talk.session.ack("m-1")
    talk.connect()
    assert acked(talk) == ["m-1"]


def test_a_message_the_application_still_holds_is_not_told_twice(talk: Talk) -> None:
    talk.hear(message("m-1"))
    talk.drop()
    talk.connect()
    assert talk.hear(message("m-1")) == []
    assert acked(talk) == []
    talk.session.ack("m-1")
    assert acked(talk) == ["m-1"]


def test_acking_twice_confirms_once(talk: Talk) -> None:
    talk.hear(message("m-1"))
    for _ in range(2):
        talk.session.ack("m-1")
        talk.session.nack("m-1", 0.0)
    assert talk.written() == [frames.Ack(ids=["m-1"])]


def test_what_never_came_cannot_be_acked(talk: Talk) -> None:
    talk.session.ack("m-1")
    assert talk.written() == []


def test_a_message_given_back_comes_again(talk: Talk) -> None:
    arrived = message("m-1")
    talk.hear(arrived)
    talk.session.nack("m-1", 2.5)
    assert talk.written() == [frames.Nack(ids=["m-1"], delay=2.5)]
    assert talk.hear(arrived) == [arrived]


def test_a_message_let_go_comes_again(talk: Talk) -> None:
    arrived = message("m-1")
    talk.hear(arrived)
    talk.session.release("m-1")
    talk.drop()
    talk.connect()
    assert talk.hear(arrived) == [arrived]


def test_a_nack_is_not_kept_for_another_connection(talk: Talk) -> None:
    talk.hear(message("m-1"))
    talk.session.nack("m-1", 0.0)
    talk.drop()
    talk.connect()
    assert talk.written() == []


def test_only_so_many_ids_are_remembered_and_the_oldest_goes_first() -> None:
    talk = Talk(ClientOptions(remembered_max_ids=2))
    talk.connect()
    for name in ("m-1", "m-2", "m-3"):
        talk.hear(message(name))
        talk.session.ack(name)
    assert talk.hear(message("m-3")) == []
    assert talk.hear(message("m-2")) == []
    assert talk.hear(message("m-1")) == [message("m-1")]


# --- The block list ------------------------------------------------------------------------------


@pytest.mark.parametrize("pattern", ["agent.spam", "agent.*", "agent.>"])
def test_messages_of_a_blocked_sender_are_confirmed_and_counted_not_told(
    talk: Talk, pattern: str
) -> None:
    talk.session.block_list.add(pattern)
    assert talk.hear(message("m-1", sender="agent.spam")) == []
    assert acked(talk) == ["m-1"]
    assert talk.session.block_list.count == 1


def test_others_are_heard_while_one_is_blocked(talk: Talk) -> None:
    talk.session.block_list.add("agent.spam")
    assert talk.hear(message("m-1", sender="agent.friend")) != []
    assert talk.session.block_list.count == 0


def test_a_sender_that_is_unblocked_is_heard_again(talk: Talk) -> None:
    for pattern in ("agent.spam", "agent.*"):
        talk.session.block_list.add(pattern)
        talk.session.block_list.remove(pattern)
    assert talk.hear(message("m-1", sender="agent.spam")) != []
    assert talk.session.block_list.patterns() == []


def test_a_block_list_takes_patterns_only(talk: Talk) -> None:
    with pytest.raises(InvalidSubject):
        talk.session.block_list.add("agent..spam")


# --- Confirmations -------------------------------------------------------------------------------


def confirm(message_id: str, kept_as: str | None = None) -> frames.DeliveryConfirm:
    return frames.DeliveryConfirm(
        message_id=message_id, recipient="agent.other", was_stored=True, id=kept_as
    )


def test_a_confirmation_is_told(talk: Talk) -> None:
    assert talk.hear(confirm("m-1")) == [confirm("m-1")]
    assert talk.written() == []


def test_a_confirmation_that_was_kept_is_confirmed_itself(talk: Talk) -> None:
    assert talk.hear(confirm("m-1"), confirm("m-2", "kept-1")) == [
        confirm("m-1"),
        confirm("m-2", "kept-1"),
    ]
    assert acked(talk) == ["kept-1"]


def test_kept_confirmations_delivered_again_are_confirmed_again_and_told_once(talk: Talk) -> None:
    kept = (confirm("m-1"), confirm("m-2", "kept-1"))
    talk.hear(*kept)
    talk.written()
    talk.drop()
    talk.connect()
    assert talk.hear(*kept) == []
    assert acked(talk) == ["kept-1"]


def test_every_recipient_of_one_message_confirms_it(talk: Talk) -> None:
    others = [
        frames.DeliveryConfirm(message_id="m-1", recipient=name, was_stored=False)
        for name in ("agent.a", "agent.b")
    ]
    assert talk.hear(*others) == others


# --- Signals and errors --------------------------------------------------------------------------


def test_a_signal_goes_out_while_connected_only(talk: Talk) -> None:
    assert talk.session.signal("agent.other", SIGNAL)
    assert talk.written() == [frames.SendSignal(subject="agent.other", signal=SIGNAL)]
    assert talk.session.signal("agent.other", SIGNAL)
    talk.drop()
    assert not talk.session.signal("agent.other", SIGNAL)
    talk.connect()
    assert talk.written() == []


def test_signals_that_nobody_writes_are_dropped_not_piled_up(talk: Talk) -> None:
    went = [talk.session.signal("agent.other", SIGNAL) for _ in range(LOSSY_MAX + 1)]
    assert went == [True] * LOSSY_MAX + [False]


def test_a_signal_that_is_none_is_rejected(talk: Talk) -> None:
    with pytest.raises(InvalidMessage):
        talk.session.signal("agent.other", "ring")  # type: ignore[arg-type]


def test_a_signal_is_told_unless_its_sender_is_blocked(talk: Talk) -> None:
    signalled = frames.Signalled(subject=ME, signal=SIGNAL, sender="agent.spam")
    assert talk.hear(signalled) == [signalled]
    talk.session.block_list.add("agent.spam")
    assert talk.hear(signalled) == []


def test_an_error_about_nothing_in_particular_is_told(talk: Talk) -> None:
    assert talk.hear(frames.Error(error="hm")) == [frames.Error(error="hm")]
