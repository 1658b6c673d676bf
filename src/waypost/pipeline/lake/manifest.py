"""The contents of a lake at one version, as a small JSON document. Pure: no files, no Spark.

Names in a manifest become parts of paths, so a manifest with other names is invalid.
"""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
TableName = Annotated[str, msgspec.Meta(pattern=r"^[a-z_]{1,64}\Z")]
Day = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\Z")]

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

    def days(self, table: str) -> list[str]:
        """Return the days for which a table has rows, in order."""
        return self.table_days.get(table, [])

    def known(self, relay: str, first_seq: int) -> IngestedSegment:
        """Return how far a segment was ingested; a new one has no events."""
        return self.relays.get(relay, {}).get(first_seq, IngestedSegment(0, 0, 0))


FORMAT = 2
encode_manifest = msgspec.json.Encoder().encode
decode_manifest = msgspec.json.Decoder(Manifest).decode
