"""`restore`: the last-seen times between senders and recipients, as a relay keeps them."""

from pyspark.sql import functions as F

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import EVENTS_TABLE, Lake
from waypost.pipeline.tables import pairs


def last_seen_pairs(lake: Lake, relay: str | None) -> tuple[str, list[tuple[str, str, int]]]:
    """Return the relay's name, and sender, recipient and last time (ms) of each of its pairs.

    Without `relay`, the lake must hold exactly one. Raises `LakeUnusable`.
    """
    name = _choose_relay(lake, relay)
    columns = ("relay", "sender", "endpoint", "last_seen_ms")
    restored = lake.read(EVENTS_TABLE, EVENTS).where(F.col("kind") == "seen")
    rows = (
        lake.read(pairs.NAME, pairs.SCHEMA)
        .select(*columns)
        .unionByName(restored.withColumnRenamed("seen_ms", "last_seen_ms").select(*columns))
        .where((F.col("relay") == name) & F.col("last_seen_ms").isNotNull())
        .groupBy("sender", "endpoint")
        .agg(F.max("last_seen_ms").alias("last_seen_ms"))
        .orderBy("last_seen_ms", "sender", "endpoint")
    )
    return name, [(row.sender, row.endpoint, row.last_seen_ms) for row in rows.toLocalIterator()]


def _choose_relay(lake: Lake, relay: str | None) -> str:
    known = sorted(lake.manifest.relays)
    if relay is None and len(known) == 1:
        return known[0]
    if relay in known:
        return relay
    if not known:
        raise LakeUnusable(f"no relays in {lake.path}: ingest a journal first")
    problem = "several relays" if relay is None else f"no relay {relay!r}"
    raise LakeUnusable(
        f"{problem} in {lake.path}: choose one with --relay NAME, of {', '.join(known)}"
    )
