"""What a lake holds at one version, as a small JSON document. Pure: no files, no Spark."""

import msgspec


class Segment(msgspec.Struct, frozen=True, array_like=True):
    """A journal segment that was taken in: up to which event, and what was found in it."""

    last_seq: int
    bytes: int
    events: int
    corrupt: int = 0
    missing: int = 0
    sealed: bool = True


class Manifest(msgspec.Struct, kw_only=True):
    """One version of a lake.

    `relays`: name → first seq of each segment taken in. `tables`: name → day → directories that
    make up that day. `unbuilt`: batches of events that the other tables do not know yet.
    """

    format: int = 1
    version: int = 0
    relays: dict[str, dict[int, Segment]] = {}
    tables: dict[str, dict[str, list[str]]] = {}
    unbuilt: list[int] = []

    @property
    def events(self) -> int:
        """How many there are."""
        return sum(one.events for relay in self.relays.values() for one in relay.values())

    def days(self, table: str) -> list[str]:
        """The days a table has rows of, in order."""
        return sorted(self.tables.get(table, {}))

    def known(self, relay: str, first_seq: int) -> Segment:
        """What was taken in of a segment, which may be nothing."""
        return self.relays.get(relay, {}).get(first_seq, Segment(0, 0, 0))


FORMAT = 1
encode_manifest = msgspec.json.Encoder().encode
decode_manifest = msgspec.json.Decoder(Manifest).decode
