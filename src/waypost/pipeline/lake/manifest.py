"""The contents of a lake at one version, as a small JSON document. Pure: no files, no Spark.

Names in a manifest become parts of paths, so a manifest with other names is invalid.
"""

from typing import Annotated

import msgspec

Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
TableName = Annotated[str, msgspec.Meta(pattern=r"^[a-z_]{1,64}\Z")]
Day = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])\Z")]
Part = Annotated[str, msgspec.Meta(pattern=r"^(slot=[01]|batch=[0-9]{1,19})\Z")]


class IngestedSegment(msgspec.Struct, frozen=True, array_like=True):
    """How far a journal segment was ingested, and the damage in it."""

    last_seq: Count
    bytes: Count
    events: Count
    corrupt: Count = 0
    missing: Count = 0
    sealed: bool = True


class Manifest(msgspec.Struct, kw_only=True):
    """One version of a lake.

    `relays`: name → first seq → ingested segment. `tables`: name → day → directories that make up
    that day. `unbuilt`: batches of events that are not in the other tables yet.
    """

    format: int = 1
    version: Count = 0
    relays: dict[str, dict[Count, IngestedSegment]] = {}
    tables: dict[TableName, dict[Day, list[Part]]] = {}
    unbuilt: list[Count] = []

    @property
    def events(self) -> int:
        """Return the number of events."""
        return sum(one.events for relay in self.relays.values() for one in relay.values())

    def days(self, table: str) -> list[str]:
        """Return the days for which a table has rows, in order."""
        return sorted(self.tables.get(table, {}))

    def known(self, relay: str, first_seq: int) -> IngestedSegment:
        """Return how far a segment was ingested; a new one has no events."""
        return self.relays.get(relay, {}).get(first_seq, IngestedSegment(0, 0, 0))


FORMAT = 1
encode_manifest = msgspec.json.Encoder().encode
decode_manifest = msgspec.json.Decoder(Manifest).decode
