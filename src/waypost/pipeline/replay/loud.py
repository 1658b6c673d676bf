"""Keys that have to be looked at: senders or endpoints, each of a relay, numbered."""

from collections.abc import Callable

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.replay.places import KEYS_MAX, SEQ_BITS, SEQ_MASK

Keep = Callable[[DataFrame], DataFrame]


class Loud:
    """The keys of `rows` (relay, name), which are distinct. None stands for no keys at all."""

    def __init__(self, rows: DataFrame | None, keep: Keep) -> None:
        self.count = 0
        self.firsts: list[tuple[int, str]] = []
        """The number of each relay's first key, in order."""
        if rows is None:
            return
        in_order = Window.orderBy("relay", "name")
        number = (F.row_number().over(in_order) - 1).cast("bigint")
        self._rows = keep(rows.select("relay", "name", number.alias("number")))
        counts = self._rows.groupBy("relay").count().collect()
        for row in sorted(counts):
            self.firsts.append((self.count, row.relay))
            self.count += row["count"]
        if self.count > KEYS_MAX:
            raise LakeUnusable(
                f"{self.count:,} senders or endpoints would have to be replayed step by step, and"
                f" {KEYS_MAX:,} is the most: make a lake of fewer relays"
            )

    def of(self, rows: DataFrame, by: str) -> DataFrame:
        """Those of `rows` whose key is among these, with their `place`; `by` has its name."""
        if not self.count:
            return rows.where(F.lit(False)).withColumn("place", F.col("seq"))
        named = F.broadcast(self._rows.withColumnRenamed("name", by))
        joined = rows.join(named, on=["relay", by], how="inner")
        place = F.shiftleft("number", SEQ_BITS).bitwiseOR(F.col("seq"))
        return joined.withColumn("place", place).drop("number")

    def others(self, rows: DataFrame, by: str) -> DataFrame:
        """Those of `rows` whose key is not among these."""
        if not self.count:
            return rows
        named = F.broadcast(self._rows.withColumnRenamed("name", by).drop("number"))
        return rows.join(named, on=["relay", by], how="left_anti")

    def named(self, rows: DataFrame, by: str) -> DataFrame:
        """`rows`, which have a `place`, with `relay`, `by` and `seq` instead."""
        known = F.broadcast(self._rows.withColumnRenamed("name", by))
        numbered = rows.withColumns(
            {
                "number": F.shiftright("place", SEQ_BITS),
                "seq": F.col("place").bitwiseAND(F.lit(SEQ_MASK)),
            }
        )
        return numbered.join(known, on=["number"], how="inner").drop("number", "place")


def by_key(rows: DataFrame) -> DataFrame:
    """`rows` that have a `place`: those of one key in one partition, and partitions in order."""
    return rows.repartition(F.shiftright("place", SEQ_BITS)).sortWithinPartitions("place")
