"""Operations on their way to the relay.

Rule 1  An operation that expects an answer is kept until the answer arrives, across connections:
        after each reconnect it is written again, in the old order.
Rule 2  An operation that expects none (a nack, a signal) is written once, on the connection it was
        made on, or never.
Rule 3  A withdrawn operation is not written any more.

A send may be written more than once because it carries its message id: the relay stores it once.
"""

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from waypost.client.protocol.framing import FrameBuilder
from waypost.policy.bounds import number_max
from waypost.policy.errors import InvalidMessage

LOSSY_MAX = 10_000
"""Signals are dropped when this many operations wait to be written."""

ONE_WAY_MAX = 20_000
"""Nacks are dropped when this many operations wait to be written: the relay does not read them, and
after the connection it delivers the messages again anyway."""


class UnansweredOperation(msgspec.Struct, gc=False):
    """An encoded operation that expects an answer: a send of `message_id`, or a fetch of up to
    `fetch_limit` messages."""

    encoded: bytes
    message_id: str = ""
    fetch_limit: int = 0


class Outbox:
    """Operations by their `ref`, and those without one."""

    def __init__(self) -> None:
        self._next_ref = 0
        self._unanswered: dict[int, UnansweredOperation] = {}
        self._unwritten: deque[int] = deque()
        self._one_way: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._unanswered)

    def new_ref(self) -> int:
        """Return a number that no other operation of this outbox has."""
        self._next_ref = (self._next_ref + 1) % number_max
        return self._next_ref

    def put(self, ref: int, operation: UnansweredOperation) -> None:
        """Keep an operation until `answered` or `withdraw`."""
        self._unanswered[ref] = operation
        self._unwritten.append(ref)

    def put_once(self, encoded: bytes) -> None:
        """Write this once, on this connection, unless the relay has stopped reading."""
        if len(self._one_way) < ONE_WAY_MAX:
            self._one_way.append(encoded)

    def put_lossy(self, encoded: bytes) -> bool:
        """Write this once; return False and drop it when too many operations are queued."""
        if len(self._one_way) >= LOSSY_MAX:
            return False
        self._one_way.append(encoded)
        return True

    def find(self, ref: int) -> UnansweredOperation | None:
        """Return the operation `ref`; None if it was withdrawn or answered before."""
        return self._unanswered.get(ref)

    def answered(self, ref: int) -> UnansweredOperation | None:
        """Remove and return the operation `ref`; None if it was withdrawn or answered before."""
        return self._unanswered.pop(ref, None)

    def sent(self, ref: int) -> str | None:
        """Remove a send that was answered and return its message id; None as in `answered`.

        Raises `InvalidMessage` if `ref` is another operation.
        """
        asked = self._unanswered.get(ref)
        if asked is None:
            return None
        if not asked.message_id:
            raise InvalidMessage("sent as the answer to another operation")
        del self._unanswered[ref]
        return asked.message_id

    def withdraw(self, ref: int) -> None:
        """Drop the operation `ref`: if it is not written yet, it never will be."""
        self._unanswered.pop(ref, None)

    def disconnected(self) -> None:
        """Queue everything unanswered again; drop operations that expect no answer."""
        self._unwritten = deque(self._unanswered)
        self._one_way.clear()

    def remove_if(self, condition: Callable[[UnansweredOperation], bool]) -> Iterator[int]:
        """Remove every operation that meets `condition`, and yield its ref."""
        for ref in [ref for ref, one in self._unanswered.items() if condition(one)]:
            del self._unanswered[ref]
            yield ref

    def fill(self, frame: FrameBuilder) -> None:
        """Move as many operations into `frame` as fit."""
        while self._one_way and frame.fits(self._one_way[0]):
            frame.add(self._one_way.popleft())
        while self._unwritten:
            waiting = self._unanswered.get(self._unwritten[0])
            if waiting is not None:
                if not frame.fits(waiting.encoded):
                    return
                frame.add(waiting.encoded)
            self._unwritten.popleft()

    @property
    def has_unwritten(self) -> bool:
        """Return whether `fill` would add something."""
        return bool(self._one_way) or any(ref in self._unanswered for ref in self._unwritten)
