"""Automatic batching: frames as full as the relay allows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.session_harness import SessionHarness, message, welcome
from waypost.client.options import ClientOptions
from waypost.client.protocol.events import OperationFailed
from waypost.policy.errors import InvalidMessage
from waypost.wire import frames


def sends(operations: list[frames.FromAgent]) -> list[int]:
    return [one.ref for one in operations if isinstance(one, frames.Send)]


def test_queued_operations_share_one_frame() -> None:
    harness = SessionHarness()
    harness.connect()
    refs = [harness.send(number)[0] for number in range(20)]
    harness.receive_frame(message("m-1"))
    harness.session.ack("m-1")
    [frame] = harness.frames_written()
    ack, *rest = harness.codec.from_agent(frame)
    assert ack == frames.Ack(ids=["m-1"])
    assert sends(rest) == refs


def test_a_single_operation_is_written_without_a_list() -> None:
    harness = SessionHarness()
    harness.connect()
    harness.send("alone")
    [frame] = harness.frames_written()
    assert frame.startswith(b"{")


def test_a_frame_holds_no_more_operations_than_the_relay_allows() -> None:
    harness = SessionHarness()
    harness.connect(welcome(operations_max=4))
    refs = [harness.send(number)[0] for number in range(10)]
    written = [harness.codec.from_agent(frame) for frame in harness.frames_written()]
    assert [len(one) for one in written] == [4, 4, 2]
    assert [ref for one in written for ref in sends(one)] == refs


@given(
    sizes=st.lists(st.integers(0, 900), max_size=30),
    acks=st.integers(0, 60),
    frame_max_bytes=st.integers(1100, 4000),
    operations_max=st.integers(1, 10),
    encoding=st.sampled_from(["json", "msgpack"]),
)
def test_every_frame_is_within_the_limits_and_no_operation_is_lost(
    sizes: list[int], acks: int, frame_max_bytes: int, operations_max: int, encoding: str
) -> None:
    harness = SessionHarness(ClientOptions(encoding=encoding))  # type: ignore[arg-type]
    harness.connect(welcome(frame_max_bytes=frame_max_bytes, operations_max=operations_max))
    ids = [f"{number:064}" for number in range(acks)]
    for one in ids:
        harness.receive_frame(message(one))
        harness.session.ack(one)
    refs = [harness.send("x" * size)[0] for size in sizes]
    written = harness.frames_written()
    assert all(len(frame) <= frame_max_bytes for frame in written)
    operations = [harness.codec.from_agent(frame) for frame in written]
    assert all(len(one) <= operations_max for one in operations)
    flat = [operation for one in operations for operation in one]
    assert sends(flat) == refs
    assert [name for one in flat if isinstance(one, frames.Ack) for name in one.ids] == ids


def test_a_message_too_large_for_any_frame_is_rejected_at_once() -> None:
    harness = SessionHarness()
    harness.connect(welcome(frame_max_bytes=1000))
    with pytest.raises(InvalidMessage, match="too large for the relay"):
        harness.send("x" * 1000)
    assert not harness.session.awaits_answers


def test_a_message_too_large_for_a_new_connection_is_rejected_on_connect() -> None:
    harness = SessionHarness()
    harness.connect()
    large, _ = harness.send("x" * 2000)
    small, _ = harness.send("y")
    harness.drop()
    _, rejected = harness.connect(welcome(frame_max_bytes=1000))
    assert isinstance(rejected, OperationFailed)
    assert (rejected.ref, type(rejected.problem)) == (large, InvalidMessage)
    assert sends(harness.written()) == [small]
