"""The session: handshake, sends, messages and reconnects, without a socket."""

from typing import Any

import msgspec
import pytest

from tests.client.session_harness import ME, NOW_MS, SessionHarness, message, prove, sent, welcome
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
def harness(request: pytest.FixtureRequest) -> SessionHarness:
    return SessionHarness(ClientOptions(encoding=request.param))


@pytest.fixture
def connected(harness: SessionHarness) -> SessionHarness:
    harness.connect()
    return harness


# --- The handshake -------------------------------------------------------------------------------


def test_the_relay_speaks_first(harness: SessionHarness) -> None:
    harness.session.connected()
    assert harness.written() == []


def test_a_challenge_is_answered_with_the_proof_and_nothing_else(harness: SessionHarness) -> None:
    harness.send("too early")
    harness.session.connected()
    harness.receive_frame(frames.Challenge(nonce="abc"))
    assert harness.written() == [prove("abc")]


def test_batches_are_requested_from_a_relay_that_offers_them_only(harness: SessionHarness) -> None:
    harness.session.connected()
    harness.receive_frame(frames.Challenge(nonce="abc", batches=True))
    [proof] = harness.written()
    assert isinstance(proof, frames.Auth)
    assert proof.batches
    harness.session.connected()
    harness.receive_frame(frames.Challenge(nonce="abc"))
    [frame] = harness.frames_written()
    assert b"batches" not in frame  # a relay of before rejects fields that it does not know


def test_queued_sends_are_written_after_the_welcome(harness: SessionHarness) -> None:
    harness.send("early")
    harness.connect()
    [written] = harness.written()
    assert isinstance(written, frames.Send)


def test_a_session_is_ready_from_welcome_to_disconnect(harness: SessionHarness) -> None:
    assert not harness.session.is_ready
    [event] = harness.connect()
    assert isinstance(event, frames.Welcome)
    assert harness.session.is_ready
    harness.drop()
    assert not harness.session.is_ready


def test_queue_status_and_live_are_emitted(connected: SessionHarness) -> None:
    assert connected.receive_frame(frames.QueueStatus(pending=3), frames.Live()) == [
        frames.QueueStatus(pending=3),
        frames.Live(),
    ]


def test_a_malformed_frame_raises(connected: SessionHarness) -> None:
    with pytest.raises(msgspec.DecodeError):
        connected.session.received(b"\xc1garbage", NOW_MS)


# --- Disconnecting ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (frames.CLOSE_NOT_AUTHENTICATED, NotAuthenticated),
        (frames.CLOSE_FORBIDDEN, SubjectTaken),
        (frames.CLOSE_ALREADY_CONNECTED, AlreadyConnected),
    ],
)
def test_a_rejection_at_the_first_attempt_is_final(
    harness: SessionHarness, code: int, error: type[Exception]
) -> None:
    harness.session.connected()
    harness.receive_frame(frames.Error(error="because I say so", fatal=True))
    with pytest.raises(error, match="because I say so"):
        harness.drop(code)


def test_already_connected_is_not_final_after_a_first_success(connected: SessionHarness) -> None:
    connected.drop()
    assert connected.drop(frames.CLOSE_ALREADY_CONNECTED) > 0


def test_a_key_that_was_accepted_before_may_fail_three_times(
    connected: SessionHarness,
) -> None:
    connected.drop()
    connected.drop(frames.CLOSE_NOT_AUTHENTICATED)
    connected.connect()  # accepted: the count restarts
    connected.drop()
    for _ in range(2):
        connected.drop(frames.CLOSE_NOT_AUTHENTICATED)
    with pytest.raises(NotAuthenticated):
        connected.drop(frames.CLOSE_NOT_AUTHENTICATED)


def test_subject_taken_is_final_at_any_time(connected: SessionHarness) -> None:
    with pytest.raises(SubjectTaken):
        connected.drop(frames.CLOSE_FORBIDDEN)


def test_the_retry_delay_of_the_relay_is_respected(connected: SessionHarness) -> None:
    connected.receive_frame(frames.Error(error="full", fatal=True, retry_after_ms=45_000))
    assert connected.drop(1013) == 45_000
    assert connected.drop(1013) < 45_000  # it applied to one connection only


# --- Sends ---------------------------------------------------------------------------------------


def test_a_send_is_written_with_all_its_fields(connected: SessionHarness) -> None:
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


def test_an_answer_is_emitted_once(connected: SessionHarness) -> None:
    ref, message_id = connected.send()
    rejected = Rejection("abc", Reason.QUOTA_EXCEEDED, "too much")
    answer = frames.SendResult(
        ref=ref, message_id=message_id, delivered_to=2, rejected=[rejected], retry_after_ms=9
    )
    result = PublishResult(
        message_id=message_id, delivered_to=2, rejected=[rejected], retry_after_ms=9
    )
    assert connected.receive_frame(answer) == [Answered(ref, result)]
    assert connected.receive_frame(answer) == []


def test_one_answer_to_many_sends_answers_each_that_was_not_withdrawn(
    connected: SessionHarness,
) -> None:
    sends = [connected.send(number) for number in range(4)]
    connected.session.withdraw(sends[1][0])
    answer = frames.SentMany(ref=sends[0][0], last_ref=sends[2][0], delivered_to=1)
    assert connected.receive_frame(answer) == [
        Answered(ref, PublishResult(message_id=message_id, delivered_to=1))
        for ref, message_id in (sends[0], sends[2])
    ]
    assert connected.receive_frame(answer) == []
    connected.drop()
    connected.connect()
    assert [one.message_id for one in connected.written() if isinstance(one, frames.Send)] == [
        sends[3][1]
    ]


def test_many_sends_are_no_answer_to_a_fetch(connected: SessionHarness) -> None:
    ref = connected.session.fetch(frames.Fetch(ref=0))
    with pytest.raises(InvalidMessage, match="answer to another operation"):
        connected.receive_frame(frames.SentMany(ref=ref, last_ref=ref, delivered_to=1))


def test_an_error_about_a_send_is_its_answer(connected: SessionHarness) -> None:
    ref, _ = connected.send()
    rejected = frames.Error(ref=ref, error="stopped", reason="stopped", retry_after_ms=7)
    [event] = connected.receive_frame(rejected)
    assert isinstance(event, OperationFailed)
    assert isinstance(event.problem, OperationRejected)
    assert (event.ref, event.problem.reason, event.problem.retry_after_ms) == (ref, "stopped", 7)
    assert not connected.session.awaits_answers


def test_a_send_rejected_as_invalid_is_an_invalid_message(connected: SessionHarness) -> None:
    ref, _ = connected.send()
    [event] = connected.receive_frame(
        frames.Error(ref=ref, error="no such budget", reason="invalid")
    )
    assert isinstance(event, OperationFailed)
    assert isinstance(event.problem, InvalidMessage)


def test_an_unanswered_send_is_written_again_unchanged(connected: SessionHarness) -> None:
    connected.send("once")
    [first] = connected.written()
    connected.drop()
    assert connected.written() == []
    connected.connect()
    assert connected.written() == [first]


def test_sends_keep_their_order_over_reconnects(connected: SessionHarness) -> None:
    refs = [connected.send(number)[0] for number in range(3)]
    connected.written()
    connected.receive_frame(sent(refs[1]))
    connected.drop()
    refs.append(connected.send("new")[0])
    connected.connect()
    again = [one.ref for one in connected.written() if isinstance(one, frames.Send)]
    assert again == [refs[0], refs[2], refs[3]]


def test_an_answered_send_is_not_written_again(connected: SessionHarness) -> None:
    ref, _ = connected.send()
    connected.written()
    connected.receive_frame(sent(ref))
    connected.drop()
    connected.connect()
    assert connected.written() == []


def test_a_send_withdrawn_before_it_is_written_never_is(connected: SessionHarness) -> None:
    ref, _ = connected.send()
    connected.session.withdraw(ref)
    assert connected.written() == []
    assert not connected.session.has_unwritten


def test_a_withdrawn_send_is_not_written_again_and_its_answer_is_ignored(
    connected: SessionHarness,
) -> None:
    ref, _ = connected.send()
    connected.written()
    connected.session.withdraw(ref)
    assert connected.receive_frame(sent(ref)) == []
    connected.drop()
    connected.connect()
    assert connected.written() == []


def test_an_integer_beyond_64_bits_is_rejected_in_msgpack() -> None:
    SessionHarness().send(1 << 80)
    with pytest.raises(InvalidMessage, match="msgpack"):
        SessionHarness(ClientOptions(encoding="msgpack")).send(1 << 80)


def test_ids_are_all_different_and_sorted(harness: SessionHarness) -> None:
    ids = [harness.session.new_id(NOW_MS) for _ in range(100)]
    assert sorted(set(ids)) == ids


# --- Requests ------------------------------------------------------------------------------------


def ask(harness: SessionHarness, message_id: str = "ask-1", subject: str = "agent.other") -> int:
    wanted = Outgoing(subject=subject, payload="?")
    return harness.session.send(wanted, message_id, reply_within_s=5.0)


def test_a_reply_is_matched_to_its_request_and_acked(connected: SessionHarness) -> None:
    ask(connected)
    connected.written()
    reply = message("r-1", "!", parent="ask-1")
    assert connected.receive_frame(reply) == [Replied("ask-1", reply)]
    assert connected.written() == [frames.Ack(ids=["r-1"])]


def test_a_second_reply_is_a_message_like_any_other(connected: SessionHarness) -> None:
    ask(connected)
    connected.receive_frame(message("r-1", parent="ask-1"))
    second = message("r-2", parent="ask-1")
    assert connected.receive_frame(second) == [second]


def test_a_reply_after_the_request_was_withdrawn_is_a_message(connected: SessionHarness) -> None:
    ask(connected)
    connected.session.forget_request("ask-1")
    late = message("r-1", parent="ask-1")
    assert connected.receive_frame(late) == [late]


def test_a_message_from_another_sender_is_not_a_reply(connected: SessionHarness) -> None:
    ask(connected)
    forged = message("r-1", parent="ask-1", sender="agent.mallory")
    assert connected.receive_frame(forged) == [forged]
    assert connected.session.awaits_answers


def test_any_agent_under_the_requested_pattern_may_reply(connected: SessionHarness) -> None:
    ask(connected, subject="agent.*")
    [event] = connected.receive_frame(message("r-1", parent="ask-1", sender="agent.third"))
    assert isinstance(event, Replied)


# --- Fetches -------------------------------------------------------------------------------------


def test_a_fetch_is_answered_with_messages(connected: SessionHarness) -> None:
    ref = connected.session.fetch(
        frames.Fetch(ref=0, limit=10, max_size_bytes=4096, wait=1.5, tiers=True)
    )
    [asked] = connected.written()
    assert asked == frames.Fetch(ref=ref, limit=10, max_size_bytes=4096, wait=1.5, tiers=True)
    found = [message("m-1"), message("m-2")]
    assert connected.receive_frame(frames.FetchedMessages(ref=ref, messages=found)) == [
        Fetched(ref, found, 2)
    ]


def test_an_unanswered_fetch_is_written_again(connected: SessionHarness) -> None:
    connected.session.fetch(frames.Fetch(ref=0, limit=10))
    [asked] = connected.written()
    connected.drop()
    connected.connect()
    assert connected.written() == [asked]


def test_fetched_messages_that_were_acked_before_are_acked_again(connected: SessionHarness) -> None:
    connected.receive_frame(message("m-1"))
    connected.session.ack("m-1")
    ref = connected.session.fetch(frames.Fetch(ref=0, limit=10))
    connected.written()
    answer = frames.FetchedMessages(ref=ref, messages=[message("m-1"), message("m-2")])
    assert connected.receive_frame(answer) == [Fetched(ref, [message("m-2")], 2)]
    assert connected.written() == [frames.Ack(ids=["m-1"])]


def test_messages_of_a_withdrawn_fetch_are_released(connected: SessionHarness) -> None:
    ref = connected.session.fetch(frames.Fetch(ref=0, limit=10))
    connected.written()
    connected.session.withdraw(ref)
    assert connected.receive_frame(frames.FetchedMessages(ref=ref, messages=[message("m-1")])) == []
    assert connected.written() == [frames.Nack(ids=["m-1"], release=True)]


def test_the_limits_come_from_the_welcome(harness: SessionHarness) -> None:
    harness.connect(welcome(frame_max_bytes=123_456))
    assert harness.session.welcome is not None
    assert harness.session.welcome.frame_max_bytes == 123_456
    assert harness.session.welcome.subject == ME
