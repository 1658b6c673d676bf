"""Keys that have to be looked at, numbered."""

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.replay.keys import KEY
from waypost.pipeline.replay.places import KEYS_MAX, SEQ_BITS, SEQ_MASK


class Loud:
    """`keys` (relay, name), which are distinct."""

    def __init__(self, spark: SparkSession, keys: pa.Table) -> None:
        self.count = keys.num_rows
        require_room(self.count)
        in_order = keys.select(KEY).sort_by([(name, "ascending") for name in KEY])
        numbered = in_order.append_column("number", pa.array(range(self.count), pa.int64()))
        self.firsts = _firsts(numbered)
        """The number of each relay's first key, in order."""
        self._rows = spark.createDataFrame(numbered) if self.count else None

    def of(self, rows: DataFrame, by: str) -> DataFrame:
        """Those of `rows` whose key is among these, with their `place`; `by` has its name."""
        if self._rows is None:
            return rows.where(F.lit(False)).withColumn("place", F.col("seq"))
        named = F.broadcast(self._rows.withColumnRenamed("name", by))
        joined = rows.join(named, on=["relay", by], how="inner")
        place = F.shiftleft("number", SEQ_BITS).bitwiseOR(F.col("seq"))
        return joined.withColumn("place", place).drop("number")

    def others(self, rows: DataFrame, by: str) -> DataFrame:
        """Those of `rows` whose key is not among these."""
        if self._rows is None:
            return rows
        named = F.broadcast(self._rows.withColumnRenamed("name", by).drop("number"))
        return rows.join(named, on=["relay", by], how="left_anti")

    def named(self, rows: DataFrame, by: str) -> DataFrame:
        """`rows`, which have a `place`, with `relay`, `by` and `seq` instead."""
        assert self._rows is not None, "a place is the place of a key"
        known = F.broadcast(self._rows.withColumnRenamed("name", by))
        numbered = rows.withColumns(
            {
                "number": F.shiftright("place", SEQ_BITS),
                "seq": F.col("place").bitwiseAND(F.lit(SEQ_MASK)),
            }
        )
        return numbered.join(known, on=["number"], how="inner").drop("number", "place")


def require_room(keys: int) -> None:
    """Raises `LakeUnusable` if there are more `keys` than can be told apart."""
    if keys > KEYS_MAX:
        raise LakeUnusable(
            f"{keys:,} senders or endpoints would have to be replayed step by step, and"
            f" {KEYS_MAX:,} is the most: make a lake of fewer relays"
        )


def by_key(rows: DataFrame) -> DataFrame:
    """`rows` that have a `place`: those of one key in one partition, and partitions in order."""
    return rows.repartition(F.shiftright("place", SEQ_BITS)).sortWithinPartitions("place")


def _firsts(numbered: pa.Table) -> list[tuple[int, str]]:
    first = numbered.group_by("relay").aggregate([("number", "min")])
    return sorted((row["number_min"], row["relay"]) for row in first.to_pylist())
