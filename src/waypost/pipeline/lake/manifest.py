"""The contents of a lake at one version, as a small JSON document. Pure: no files, no Spark.

Names in a manifest become parts of paths, so a manifest with other names is invalid.
"""

from collections.abc import Callable
from typing import Annotated, TypeVar

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
TableName = Annotated[str, msgspec.Meta(pattern=r"^[a-z_]{1,64}\Z")]
Day = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\Z")]

T = TypeVar("T")

_PACK = r"[0-9]{1,19}-[0-9a-f]{8,32}(/pack=[0-9]{1,9})?"
Pack = Annotated[str, msgspec.Meta(pattern=rf"^{_PACK}\Z")]
FilePath = Annotated[str, msgspec.Meta(pattern=rf"^{_PACK}/[A-Za-z0-9_.-]{{1,255}}\.parquet\Z")]
Directory = Annotated[
    str, msgspec.Meta(pattern=rf"^[a-z_]{{1,64}}/({_PACK}|day=[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}})\Z")
]


class IngestedSegment(msgspec.Struct, frozen=True, array_like=True):
    """How far a journal segment was ingested, and the damage in it."""

    last_seq: Count
    bytes: Count
    events: Count
    corrupt: Count = 0
    missing: Count = 0
    sealed: bool = True


class DataFile(msgspec.Struct, frozen=True):
    """A Parquet file of a table: its path below the table's directory, and its range of days."""

    path: FilePath
    bytes: Count
    rows: Count
    first_day: Day
    last_day: Day

    @property
    def pack(self) -> str:
        """Return the directory of the file, whose files are replaced and removed together."""
        return self.path.rpartition("/")[0]


class EventBatch(msgspec.Struct, frozen=True):
    """Events that one job added: their pack, and the days of its rows."""

    pack: Pack
    days: list[Day]


class Retired(msgspec.Struct, frozen=True):
    """A directory that no version from `version` on lists, and when that version was made."""

    directory: Directory
    version: Count
    at_ms: Count


class Manifest(msgspec.Struct, kw_only=True):
    """One version of a lake.

    `relays`: name → first seq → ingested segment. `tables`: name → the files that make it up.
    `table_days`: name → days for which it has rows, in order. `unbuilt`: batches of events that
    are not in the other tables yet. `retired`: directories of earlier versions, to be removed.
    """

    format: int = 2
    version: Count = 0
    relays: dict[str, dict[Count, IngestedSegment]] = {}
    tables: dict[TableName, list[DataFile]] = {}
    table_days: dict[TableName, list[Day]] = {}
    unbuilt: list[EventBatch] = []
    retired: list[Retired] = []

    @property
    def events(self) -> int:
        """Return the number of events."""
        return sum(one.events for relay in self.relays.values() for one in relay.values())

    @property
    def event_bytes(self) -> int:
        """Return the size of the files of `events`."""
        return sum(one.bytes for one in self.tables.get("events", []))

    def days(self, table: str) -> list[str]:
        """Return the days for which a table has rows, in order."""
        return self.table_days.get(table, [])

    def known(self, relay: str, first_seq: int) -> IngestedSegment:
        """Return how far a segment was ingested; a new one has no events."""
        return self.relays.get(relay, {}).get(first_seq, IngestedSegment(0, 0, 0))


def rebase(ours: Manifest, base: Manifest, theirs: Manifest, appended: str) -> Manifest | None:
    """Return the change from `base` to `ours` on top of `theirs`, which was made from `base`, too.

    None if they conflict: both changed the segments of a relay, or a table. To `appended`, one may
    add files while the other adds or replaces some. So an ingest and a build do not conflict.
    """
    relays = {name: one for name, one in ours.relays.items() if one != base.relays.get(name)}
    tables = {name: one for name, one in ours.tables.items() if one != base.tables.get(name, [])}
    both = [name for name in relays if theirs.relays.get(name) != base.relays.get(name)]
    both += [name for name in tables if theirs.tables.get(name, []) != base.tables.get(name, [])]
    removed = _without(base.tables.get(appended, []), ours.tables.get(appended, []))
    if set(both) - {appended} or _without(removed, theirs.tables.get(appended, [])):
        return None
    if appended in tables:
        tables[appended] = _on_top(ours, base, theirs, lambda one: one.tables.get(appended, []))
    days = {name: ours.days(name) for name in tables}
    days[appended] = sorted({*ours.days(appended), *theirs.days(appended)})
    return Manifest(
        version=theirs.version + 1,
        relays={**theirs.relays, **relays},
        tables={**theirs.tables, **tables},
        table_days={**theirs.table_days, **days},
        unbuilt=_on_top(ours, base, theirs, lambda one: one.unbuilt),
        retired=_on_top(ours, base, theirs, lambda one: one.retired),
    )


def _on_top(
    ours: Manifest, base: Manifest, theirs: Manifest, part: Callable[[Manifest], list[T]]
) -> list[T]:
    """Return a list of `theirs` without what we removed from that of `base`, and with our own."""
    removed = _without(part(base), part(ours))
    return _without(part(theirs), removed) + _without(part(ours), part(base))


def _without(some: list[T], others: list[T]) -> list[T]:
    return [one for one in some if one not in others]


FORMAT = 2
encode_manifest = msgspec.json.Encoder().encode
decode_manifest = msgspec.json.Decoder(Manifest).decode
