"""The session: handshake, sends, mail and reconnects, without a socket."""

from typing import Any

import msgspec
import pytest

from tests.client.session_harness import ME, NOW_MS, Talk, message, prove, sent, welcome
from waypost.client.errors import (
    AlreadyConnected,
    NotAuthenticated,
    OperationRejected,
    SubjectTaken,
)
from waypost.client.message import Outgoing
from waypost.client.options import ClientOptions
from waypost.client.protocol.events import Answered, Fetched, OperationFailed, Replied
from waypost.policy.errors import InvalidMessage
from waypost.policy.reasons import Reason
from waypost.wire import frames
from waypost.wire.results import PublishResult, Rejection


@pytest.fixture(params=["json", "msgpack"])
def talk(request: pytest.FixtureRequest) -> Talk:
    return Talk(ClientOptions(encoding=request.param))


@pytest.fixture
def connected(talk: Talk) -> Talk:
    talk.connect()
    return talk


# --- The handshake -------------------------------------------------------------------------------


def test_the_relay_speaks_first(talk: Talk) -> None:
    talk.session.connected()
    assert talk.written() == []


def test_a_challenge_is_answered_with_the_proof_and_nothing_else(talk: Talk) -> None:
    talk.send("too early")
    talk.session.connected()
    talk.hear(frames.Challenge(nonce="abc"))
    assert talk.written() == [prove("abc")]


def test_what_waited_is_written_after_the_welcome(talk: Talk) -> None:
    talk.send("early")
    talk.connect()
    [written] = talk.written()
    assert isinstance(written, frames.Send)


def test_a_session_is_ready_from_welcome_to_disconnect(talk: Talk) -> None:
    assert not talk.session.is_ready
    [told] = talk.connect()
    assert isinstance(told, frames.Welcome)
    assert talk.session.is_ready
    talk.drop()
    assert not talk.session.is_ready


def test_queue_status_and_live_are_told(connected: Talk) -> None:
    assert connected.hear(frames.QueueStatus(pending=3), frames.Live()) == [
        frames.QueueStatus(pending=3),
        frames.Live(),
    ]


def test_a_frame_that_is_none_raises(connected: Talk) -> None:
    with pytest.raises(msgspec.DecodeError):
        connected.session.received(b"\xc1garbage", NOW_MS)


# --- Ends of connections -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (frames.CLOSE_NOT_AUTHENTICATED, NotAuthenticated),
        (frames.CLOSE_FORBIDDEN, SubjectTaken),
        (frames.CLOSE_ALREADY_CONNECTED, AlreadyConnected),
    ],
)
def test_a_rejection_at_the_first_attempt_is_final(
    talk: Talk, code: int, error: type[Exception]
) -> None:
    talk.session.connected()
    talk.hear(frames.Error(error="because I say so", fatal=True))
    with pytest.raises(error, match="because I say so"):
        talk.drop(code)


def test_already_connected_is_not_final_for_whoever_was_let_in_before(connected: Talk) -> None:
    connected.drop()
    assert connected.drop(frames.CLOSE_ALREADY_CONNECTED) > 0


def test_a_key_that_was_good_once_is_denied_three_times_before_it_is_the_end(
    connected: Talk,
) -> None:
    connected.drop()
    connected.drop(frames.CLOSE_NOT_AUTHENTICATED)
    connected.connect()  # good again: the count begins anew
    connected.drop()
    for _ in range(2):
        connected.drop(frames.CLOSE_NOT_AUTHENTICATED)
    with pytest.raises(NotAuthenticated):
        connected.drop(frames.CLOSE_NOT_AUTHENTICATED)


def test_a_subject_taken_is_final_at_any_time(connected: Talk) -> None:
    with pytest.raises(SubjectTaken):
        connected.drop(frames.CLOSE_FORBIDDEN)


def test_a_relay_that_says_when_to_come_back_is_listened_to(connected: Talk) -> None:
    connected.hear(frames.Error(error="full", fatal=True, retry_after_ms=45_000))
    assert connected.drop(1013) == 45_000
    assert connected.drop(1013) < 45_000  # it was said of one connection only


# --- Sends ---------------------------------------------------------------------------------------


def test_a_send_is_written_with_everything_it_was_given(connected: Talk) -> None:
    parent = message("parent-1").envelope
    wanted = Outgoing(
        subject="agent.other",
        payload={"a": [1, None, "ü"]},
        parent=parent,
        reply_to="agent.me.answers",
        budget={"max_hops": 2},
    )
    ref = connected.session.send(wanted, "id-1")
    [written] = connected.written()
    assert isinstance(written, frames.Send)
    payload = connected.codec.payload_to_json(written.payload)
    decoded: Any = msgspec.json.decode(payload) if isinstance(payload, msgspec.Raw) else payload
    assert decoded == {"a": [1, None, "ü"]}
    assert msgspec.structs.replace(written, payload=msgspec.Raw()) == frames.Send(
        ref=ref,
        subject="agent.other",
        payload=msgspec.Raw(),
        reply_to="agent.me.answers",
        budget={"max_hops": 2},
        parent=frames.Parent(id="parent-1", budget=parent.budget),
        message_id="id-1",
    )


def test_an_answer_is_told_once_as_a_result(connected: Talk) -> None:
    ref, message_id = connected.send()
    rejected = Rejection("abc", Reason.QUOTA_EXCEEDED, "too much")
    answer = frames.SendResult(
        ref=ref, message_id=message_id, delivered_to=2, rejected=[rejected], retry_after_ms=9
    )
    result = PublishResult(
        message_id=message_id, delivered_to=2, rejected=[rejected], retry_after_ms=9
    )
    assert connected.hear(answer) == [Answered(ref, result)]
    assert connected.hear(answer) == []


def test_an_error_about_a_send_is_its_answer(connected: Talk) -> None:
    ref, _ = connected.send()
    rejected = frames.Error(ref=ref, error="stopped", reason="stopped", retry_after_ms=7)
    [told] = connected.hear(rejected)
    assert isinstance(told, OperationFailed)
    assert isinstance(told.problem, OperationRejected)
    assert (told.ref, told.problem.reason, told.problem.retry_after_ms) == (ref, "stopped", 7)
    assert not connected.session.awaits_answers


def test_a_send_the_relay_calls_invalid_is_an_invalid_message(connected: Talk) -> None:
    ref, _ = connected.send()
    [told] = connected.hear(frames.Error(ref=ref, error="no such budget", reason="invalid"))
    assert isinstance(told, OperationFailed)
    assert isinstance(told.problem, InvalidMessage)


def test_a_send_cut_off_before_its_answer_is_written_again_as_it_was(connected: Talk) -> None:
    connected.send("once")
    [first] = connected.written()
    connected.drop()
    assert connected.written() == []
    connected.connect()
    assert connected.written() == [first]


def test_sends_keep_their_order_over_reconnects(connected: Talk) -> None:
    refs = [connected.send(number)[0] for number in range(3)]
    connected.written()
    connected.hear(sent(refs[1]))
    connected.drop()
    refs.append(connected.send("new")[0])
    connected.connect()
    again = [one.ref for one in connected.written() if isinstance(one, frames.Send)]
    assert again == [refs[0], refs[2], refs[3]]


def test_an_answered_send_is_not_written_again(connected: Talk) -> None:
    ref, _ = connected.send()
    connected.written()
    connected.hear(sent(ref))
    connected.drop()
    connected.connect()
    assert connected.written() == []


def test_a_send_withdrawn_before_it_is_written_never_is(connected: Talk) -> None:
    ref, _ = connected.send()
    connected.session.withdraw(ref)
    assert connected.written() == []
    assert not connected.session.has_unwritten


def test_a_withdrawn_send_is_not_written_again_and_its_answer_not_told(connected: Talk) -> None:
    ref, _ = connected.send()
    connected.written()
    connected.session.withdraw(ref)
    assert connected.hear(sent(ref)) == []
    connected.drop()
    connected.connect()
    assert connected.written() == []


def test_a_number_that_msgpack_has_no_room_for_is_rejected() -> None:
    Talk().send(1 << 80)
    with pytest.raises(InvalidMessage, match="msgpack"):
        Talk(ClientOptions(encoding="msgpack")).send(1 << 80)


def test_ids_are_all_different_and_sorted(talk: Talk) -> None:
    ids = [talk.session.new_id(NOW_MS) for _ in range(100)]
    assert sorted(set(ids)) == ids


# --- Requests ------------------------------------------------------------------------------------


def ask(talk: Talk, message_id: str = "ask-1", subject: str = "agent.other") -> int:
    wanted = Outgoing(subject=subject, payload="?")
    return talk.session.send(wanted, message_id, wants_reply=True)


def test_a_reply_finds_its_request_and_is_confirmed(connected: Talk) -> None:
    ask(connected)
    connected.written()
    reply = message("r-1", "!", parent="ask-1")
    assert connected.hear(reply) == [Replied("ask-1", reply)]
    assert connected.written() == [frames.Ack(ids=["r-1"])]


def test_a_second_reply_is_a_message_like_any_other(connected: Talk) -> None:
    ask(connected)
    connected.hear(message("r-1", parent="ask-1"))
    second = message("r-2", parent="ask-1")
    assert connected.hear(second) == [second]


def test_a_reply_after_the_request_was_given_up_is_a_message(connected: Talk) -> None:
    ask(connected)
    connected.session.forget_request("ask-1")
    late = message("r-1", parent="ask-1")
    assert connected.hear(late) == [late]


def test_a_reply_from_somebody_who_was_not_asked_is_no_reply(connected: Talk) -> None:
    ask(connected)
    forged = message("r-1", parent="ask-1", sender="agent.mallory")
    assert connected.hear(forged) == [forged]
    assert connected.session.awaits_answers


def test_anyone_under_the_pattern_that_was_asked_may_reply(connected: Talk) -> None:
    ask(connected, subject="agent.*")
    [told] = connected.hear(message("r-1", parent="ask-1", sender="agent.third"))
    assert isinstance(told, Replied)


# --- Fetches -------------------------------------------------------------------------------------


def test_a_fetch_is_answered_with_messages(connected: Talk) -> None:
    ref = connected.session.fetch(10, 4096, 1.5)
    [asked] = connected.written()
    assert asked == frames.Fetch(ref=ref, limit=10, max_size_bytes=4096, wait=1.5, tiers=True)
    found = [message("m-1"), message("m-2")]
    assert connected.hear(frames.FetchedMessages(ref=ref, messages=found)) == [
        Fetched(ref, found, 2)
    ]


def test_a_fetch_cut_off_is_asked_again(connected: Talk) -> None:
    connected.session.fetch(10, None, 0.0)
    [asked] = connected.written()
    connected.drop()
    connected.connect()
    assert connected.written() == [asked]


def test_fetched_messages_that_were_done_before_are_confirmed_again(connected: Talk) -> None:
    connected.hear(message("m-1"))
    connected.session.ack("m-1")
    ref = connected.session.fetch(10, None, 0.0)
    connected.written()
    answer = frames.FetchedMessages(ref=ref, messages=[message("m-1"), message("m-2")])
    assert connected.hear(answer) == [Fetched(ref, [message("m-2")], 2)]
    assert connected.written() == [frames.Ack(ids=["m-1"])]


def test_what_was_fetched_for_nobody_is_given_back(connected: Talk) -> None:
    ref = connected.session.fetch(10, None, 0.0)
    connected.written()
    connected.session.withdraw(ref)
    assert connected.hear(frames.FetchedMessages(ref=ref, messages=[message("m-1")])) == []
    assert connected.written() == [frames.Nack(ids=["m-1"])]


def test_an_agent_knows_its_limits_from_the_welcome(talk: Talk) -> None:
    talk.connect(welcome(frame_max_bytes=123_456))
    assert talk.session.welcome is not None
    assert talk.session.welcome.frame_max_bytes == 123_456
    assert talk.session.welcome.subject == ME
