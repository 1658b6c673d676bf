"""The contents of a lake at one version, as a small JSON document. Pure: no files, no Spark."""

import msgspec


class IngestedSegment(msgspec.Struct, frozen=True, array_like=True):
    """How far a journal segment was ingested, and the damage in it."""

    last_seq: int
    bytes: int
    events: int
    corrupt: int = 0
    missing: int = 0
    sealed: bool = True


class Manifest(msgspec.Struct, kw_only=True):
    """One version of a lake.

    `relays`: name → first seq → ingested segment. `tables`: name → day → directories that make up
    that day. `unbuilt`: batches of events that are not in the other tables yet.
    """

    format: int = 1
    version: int = 0
    relays: dict[str, dict[int, IngestedSegment]] = {}
    tables: dict[str, dict[str, list[str]]] = {}
    unbuilt: list[int] = []

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
