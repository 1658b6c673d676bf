"""Checks of operations on arrival: no relay fills the memory of its agents.

Rule 1  Before its welcome a relay sends one challenge and errors, and afterwards neither a
        challenge nor a welcome.
Rule 2  Ids and names have their documented format, so that whatever is remembered of them is small.
Rule 3  A frame holds a bounded number of operations, and texts and waits are cut to a bound.
Rule 4  Bounds in bytes are for values in memory, which may be thirty times as large as on the wire.

A violation raises `InvalidMessage`, and the connection ends with a protocol error.
"""

from collections.abc import Sequence

from waypost.policy.bounds import (
    ancestor_chain_max,
    frame_max_operations,
    lease_max_messages,
    number_max,
    scheduled_max_messages,
    subject_length_max_chars,
)
from waypost.policy.errors import InvalidMessage
from waypost.policy.subjects import is_subject, validate_pattern
from waypost.wire import frames
from waypost.wire.identifiers import is_message_id
from waypost.wire.printable import error_text

FRAME_OPERATIONS_MAX = 16 * frame_max_operations
"""Many more than a relay puts into one frame."""

TEXT_MAX_CHARS = 1000
TOKEN_MAX_CHARS = 4096
RETRY_AFTER_MAX_MS = 24 * 3600 * 1000
"""The longest wait that is reported to the application. The client itself waits less."""


_RECENT_NAMES_MAX = 4096
_recent_names: set[str] = set()
"""Valid names: the same few occur in every message, and looking one up is cheaper than a check."""

_EXACT_MAX_BYTES = 4096
"""Smaller frames count as they are: their number is bounded."""

_VALUE_BYTES = 64
_MAP_BYTES = 192
_MSGPACK_FACTOR = 4
_NO_CONTAINERS = bytes(set(range(256)) - set(range(0x80, 0xA0)))
"""All bytes that do not begin a short map or list in MessagePack."""


def memory_bytes(frame: bytes | str, *, is_text: bool) -> int:
    """Return about how much memory the values of a frame take, without decoding it."""
    size = len(frame)
    if size <= _EXACT_MAX_BYTES or isinstance(frame, str):
        return size
    if is_text:
        values = frame.count(b",") + frame.count(b"[")
        return size + _VALUE_BYTES * values + _MAP_BYTES * frame.count(b"{")
    containers = len(frame.translate(None, _NO_CONTAINERS))
    return _MSGPACK_FACTOR * size + _VALUE_BYTES * containers


def check_answer(answer: frames.Answer) -> None:
    """Reject a list of more messages than can be requested."""
    too_many = False
    if isinstance(answer, frames.CancelResult):
        too_many = len(answer.ids) > lease_max_messages
    elif isinstance(answer, frames.ScheduledResult):
        too_many = len(answer.messages) > scheduled_max_messages
    if too_many:
        raise InvalidMessage("more scheduled messages than were requested")


def check_count(operations: Sequence[frames.FromRelay]) -> None:
    """Reject a frame with too many operations; one that stands for several counts as many."""
    count = len(operations)
    for operation in operations:
        if type(operation) is frames.SentMany:
            if operation.last_ref < operation.ref:
                raise InvalidMessage("sent_many without a send")
            count += operation.last_ref - operation.ref
        elif type(operation) is frames.DeliveryConfirms:
            count += len(operation.confirmed)
    if count > FRAME_OPERATIONS_MAX:
        raise InvalidMessage(f"{count:,} operations in one frame")


def check_handshake(operations: Sequence[frames.FromRelay], *, is_challenged: bool) -> None:
    """Reject everything but one challenge and errors in front of a welcome."""
    for operation in operations:
        match operation:
            case frames.Welcome():
                return
            case frames.Challenge() if not is_challenged:
                is_challenged = True
            case frames.Error():
                continue
            case _:
                raise InvalidMessage(f"{_name(operation)} before the welcome")


def check_welcome(welcome: frames.Welcome) -> None:
    """Reject a welcome with an invalid subject or an endless token."""
    _check_subject(welcome.subject)
    if len(welcome.token) > TOKEN_MAX_CHARS:
        raise InvalidMessage(f"a token of {len(welcome.token):,} characters")


def check_message(message: frames.Message) -> None:
    """Reject a message with an invalid id, name, chain or attempt."""
    envelope = message.envelope
    if not 1 <= envelope.attempt <= number_max:
        raise InvalidMessage("an attempt that is no possible number")
    _check_id(envelope.id)
    if envelope.thread and envelope.thread != envelope.id:
        _check_id(envelope.thread)
    if envelope.sender not in _recent_names:
        _check_subject(envelope.sender)
    if envelope.subject not in _recent_names:
        _check_pattern(envelope.subject)
    if message.parent is not None:
        _check_id(message.parent)
    if envelope.reply_to is not None:
        _check_subject(envelope.reply_to)
    chain = envelope.budget.ancestor_chain
    if len(chain) > ancestor_chain_max:
        raise InvalidMessage(f"a chain of {len(chain):,} endpoints")
    for endpoint in chain:
        if len(endpoint) > subject_length_max_chars:
            raise InvalidMessage(f"an endpoint of {len(endpoint):,} characters in a chain")


def check_fetched(answer: frames.FetchedMessages, limit: int) -> None:
    """Reject an answer with more than `limit` messages, or with an invalid one."""
    if len(answer.messages) > limit:
        raise InvalidMessage(f"{len(answer.messages):,} messages for a fetch of {limit:,}")
    for message in answer.messages:
        check_message(message)


def check_confirmation(confirm: frames.DeliveryConfirm | frames.DeliveryConfirms) -> None:
    """Reject confirmations with an invalid id or name."""
    if isinstance(confirm, frames.DeliveryConfirm):
        _check_id(confirm.message_id)
    else:
        for message_id, _ in confirm.confirmed:
            _check_id(message_id)
    _check_subject(confirm.recipient)
    if confirm.id is not None:
        _check_id(confirm.id)


def check_notification(about: frames.QueueFull | frames.RequestFailure) -> None:
    """Reject a notification with an invalid id or name; cut its text to a bound."""
    if about.message_id:
        _check_id(about.message_id)
    if isinstance(about, frames.RequestFailure):
        about.error = error_text(about.error)
    else:
        _check_pattern(about.recipient)
        about.reason = about.reason[:TEXT_MAX_CHARS]


def check_result(result: frames.SendResult) -> None:
    """Reject a result with an invalid id or name; cut its wait to a bound."""
    if result.message_id:
        _check_id(result.message_id)
    if result.retry_after_ms:
        result.retry_after_ms = bounded_wait_ms(result.retry_after_ms)
    if result.never_connected and result.never_connected.did_you_mean:
        _check_subject(result.never_connected.did_you_mean)


def check_signal(signalled: frames.Signalled) -> None:
    """Reject a signal with an invalid name."""
    _check_subject(signalled.subject)
    if signalled.sender:
        _check_subject(signalled.sender)


def cut_error(error: frames.Error) -> None:
    """Cut the texts and the wait of an error to their bounds."""
    error.error = error.error[:TEXT_MAX_CHARS]
    error.reason = error.reason[:TEXT_MAX_CHARS]
    error.retry_after_ms = bounded_wait_ms(error.retry_after_ms)


def bounded_wait_ms(wait_ms: int, most_ms: int = RETRY_AFTER_MAX_MS) -> int:
    """Return a wait that a relay asks for, between 0 and `most_ms`."""
    return min(max(0, wait_ms), most_ms)


def _check_id(text: str) -> None:
    if not is_message_id(text):
        raise _invalid("message id", text)


def _check_subject(text: str) -> None:
    if not is_subject(text):
        raise _invalid("subject", text)
    if len(_recent_names) >= _RECENT_NAMES_MAX:
        _recent_names.clear()
    _recent_names.add(text)


def _check_pattern(text: str) -> None:
    if is_subject(text):
        _check_subject(text)
    else:
        validate_pattern(text)


def _invalid(kind: str, text: str) -> InvalidMessage:
    return InvalidMessage(f"invalid {kind} {text[:80]!r} of {len(text):,} characters")


def _name(operation: frames.FromRelay) -> str:
    return str(operation.__struct_config__.tag)
