"""What is on its way to the relay.

Rule 1  An operation that wants an answer is kept until the answer is here, whatever happens to
        the connection: after each reconnect it is written again, in the old order.
Rule 2  An operation that wants none (a nack, a signal) is written once, on the connection it was
        meant for, or never.
Rule 3  What was withdrawn is not written any more.

A send may be written more than once because it carries its message id: the relay stores it once.
"""

from collections import deque
from collections.abc import Callable, Iterator

import msgspec

from waypost.client.protocol.framing import Frame
from waypost.policy.bounds import number_max

LOSSY_MAX = 10_000
"""Signals are dropped when this many operations wait to be written."""


class Awaited(msgspec.Struct, gc=False):
    """An encoded operation that wants an answer; `message_id` is empty for a fetch."""

    encoded: bytes
    message_id: str = ""


class Outbox:
    """Operations by their `ref`, and those without."""

    def __init__(self) -> None:
        self._next_ref = 0
        self._awaited: dict[int, Awaited] = {}
        self._unwritten: deque[int] = deque()
        self._one_way: deque[bytes] = deque()

    def __len__(self) -> int:
        return len(self._awaited)

    def new_ref(self) -> int:
        """A number no other operation of this outbox has."""
        self._next_ref = (self._next_ref + 1) % number_max
        return self._next_ref

    def put(self, ref: int, operation: Awaited) -> None:
        """Keep an operation until `answered` or `withdraw`."""
        self._awaited[ref] = operation
        self._unwritten.append(ref)

    def put_once(self, encoded: bytes) -> None:
        """Write this once, on this connection."""
        self._one_way.append(encoded)

    def put_lossy(self, encoded: bytes) -> bool:
        """Write this once, or say False when too much waits already."""
        if len(self._one_way) >= LOSSY_MAX:
            return False
        self._one_way.append(encoded)
        return True

    def answered(self, ref: int) -> Awaited | None:
        """The operation that the answer `ref` is for; None if nobody waits for it any more."""
        return self._awaited.pop(ref, None)

    def withdraw(self, ref: int) -> None:
        """Nobody wants the answer any more: if it was not written yet, it never will be."""
        self._awaited.pop(ref, None)

    def disconnected(self) -> None:
        """Everything unanswered is to be written again; what wants no answer is forgotten."""
        self._unwritten = deque(self._awaited)
        self._one_way.clear()

    def remove_if(self, unfit: Callable[[Awaited], bool]) -> Iterator[int]:
        """Take out every operation that `unfit` says so of, and yield its ref."""
        for ref in [ref for ref, one in self._awaited.items() if unfit(one)]:
            del self._awaited[ref]
            yield ref

    def fill(self, frame: Frame) -> None:
        """Move what fits into `frame`."""
        while self._one_way and frame.fits(self._one_way[0]):
            frame.add(self._one_way.popleft())
        while self._unwritten:
            waiting = self._awaited.get(self._unwritten[0])
            if waiting is not None:
                if not frame.fits(waiting.encoded):
                    return
                frame.add(waiting.encoded)
            self._unwritten.popleft()

    @property
    def has_unwritten(self) -> bool:
        """Whether `fill` would find something."""
        return bool(self._one_way) or any(ref in self._awaited for ref in self._unwritten)
