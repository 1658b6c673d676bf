"""Read docs/reference/from-the-specifications.md: the names in its tables."""

import re
from collections.abc import Iterator
from pathlib import Path

import msgspec

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "from-the-specifications.md"
NONE = "–"
_CODE = re.compile(r"`([^`]+)`(:?)")


class Row(msgspec.Struct, frozen=True):
    """A row of a table whose second column is headed `kind`."""

    kind: str
    specified: str
    ours: str
    note: str

    @property
    def names(self) -> list[str]:
        """Return the names of the second column; fields stand after a colon."""
        return list(_names_in(self.ours))


def rows() -> list[Row]:
    """Return every row of every table on the page."""
    found, kind = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            kind = ""
            continue
        specified, ours, note = (cell.strip() for cell in line.strip("|").split("|"))
        if not kind:
            kind = ours
        elif set(ours) != {"-"}:
            found.append(Row(kind, specified, ours, note))
    return found


def _names_in(cell: str) -> Iterator[str]:
    owner = ""
    for name, colon in _CODE.findall(cell):
        yield f"{owner}.{name}" if owner else name
        if colon:
            owner = name
