"""Automatic batching: as much in a frame as the relay takes, and no more."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.client.session_harness import Talk, message, welcome
from waypost.client.options import ClientOptions
from waypost.client.protocol.events import OperationFailed
from waypost.policy.errors import InvalidMessage
from waypost.wire import frames


def sends(operations: list[frames.FromAgent]) -> list[int]:
    return [one.ref for one in operations if isinstance(one, frames.Send)]


def test_what_waits_goes_out_in_one_frame() -> None:
    talk = Talk()
    talk.connect()
    refs = [talk.send(number)[0] for number in range(20)]
    talk.hear(message("m-1"))
    talk.session.ack("m-1")
    [frame] = talk.frames_written()
    ack, *rest = talk.codec.from_agent(frame)
    assert ack == frames.Ack(ids=["m-1"])
    assert sends(rest) == refs


def test_one_operation_is_written_without_a_list_around_it() -> None:
    talk = Talk()
    talk.connect()
    talk.send("alone")
    [frame] = talk.frames_written()
    assert frame.startswith(b"{")


def test_a_frame_holds_no_more_operations_than_the_relay_takes() -> None:
    talk = Talk()
    talk.connect(welcome(operations_max=4))
    refs = [talk.send(number)[0] for number in range(10)]
    written = [talk.codec.from_agent(frame) for frame in talk.frames_written()]
    assert [len(one) for one in written] == [4, 4, 2]
    assert [ref for one in written for ref in sends(one)] == refs


@given(
    sizes=st.lists(st.integers(0, 900), max_size=30),
    acks=st.integers(0, 60),
    frame_max_bytes=st.integers(1100, 4000),
    operations_max=st.integers(1, 10),
    encoding=st.sampled_from(["json", "msgpack"]),
)
def test_every_frame_keeps_to_the_limits_and_nothing_is_left_out(
    sizes: list[int], acks: int, frame_max_bytes: int, operations_max: int, encoding: str
) -> None:
    talk = Talk(ClientOptions(encoding=encoding))  # type: ignore[arg-type]
    talk.connect(welcome(frame_max_bytes=frame_max_bytes, operations_max=operations_max))
    ids = [f"{number:064}" for number in range(acks)]
    for one in ids:
        talk.hear(message(one))
        talk.session.ack(one)
    refs = [talk.send("x" * size)[0] for size in sizes]
    written = talk.frames_written()
    assert all(len(frame) <= frame_max_bytes for frame in written)
    operations = [talk.codec.from_agent(frame) for frame in written]
    assert all(len(one) <= operations_max for one in operations)
    flat = [operation for one in operations for operation in one]
    assert sends(flat) == refs
    assert [name for one in flat if isinstance(one, frames.Ack) for name in one.ids] == ids


def test_a_message_too_large_for_any_frame_is_rejected_at_once() -> None:
    talk = Talk()
    talk.connect(welcome(frame_max_bytes=1000))
    with pytest.raises(InvalidMessage, match="too large for the relay"):
        talk.send("x" * 1000)
    assert not talk.session.awaits_answers


def test_a_message_that_became_too_large_with_a_new_connection_is_rejected_then() -> None:
    talk = Talk()
    talk.connect()
    large, _ = talk.send("x" * 2000)
    small, _ = talk.send("y")
    talk.drop()
    _, rejected = talk.connect(welcome(frame_max_bytes=1000))
    assert isinstance(rejected, OperationFailed)
    assert (rejected.ref, type(rejected.problem)) == (large, InvalidMessage)
    assert sends(talk.written()) == [small]
