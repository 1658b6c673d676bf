"""A table that changes: what is in it, and what changed since it was last looked at."""

from collections.abc import Iterable
from typing import Generic, Protocol, TypeVar

import msgspec

from waypost.server.live.frames import frame


class Row(Protocol):
    """A row is known by its subject, and equal to itself while nothing in it changes."""

    @property
    def subject(self) -> str: ...


R = TypeVar("R", bound=Row)


class Rows(msgspec.Struct, kw_only=True, omit_defaults=True):
    """`whole`: these are all rows there are to show; else those that changed, and who is `gone`.

    `total` is how many there are, shown or not.
    """

    at_us: int
    total: int
    rows: list[object]
    gone: list[str] = []
    whole: bool = False


class Table(Generic[R]):
    """Rows by subject."""

    def __init__(self) -> None:
        self._rows: dict[str, R] = {}
        self._before: dict[str, R] = {}
        self._total = 0
        self._at_us = 0

    def replace(self, rows: Iterable[R], total: int, at_us: int) -> None:
        """These are the rows now."""
        self._before, self._rows = self._rows, {row.subject: row for row in rows}
        self._total, self._at_us = total, at_us

    def changes(self) -> bytes:
        """The frame that tells what the last `replace` changed."""
        before = self._before
        changed = [row for name, row in self._rows.items() if before.get(name) != row]
        gone = [name for name in before if name not in self._rows]
        told = Rows(at_us=self._at_us, total=self._total, rows=[*changed], gone=gone)
        return frame("rows", told)

    def whole(self) -> bytes:
        """The frame that tells all rows."""
        told = Rows(at_us=self._at_us, total=self._total, rows=[*self._rows.values()], whole=True)
        return frame("rows", told)
