"""Keys of the replay: senders and endpoints, each of one relay.

Keys are few, so they are collected on the driver as Arrow tables (`relay`, `name`); this also cuts
the lineage of later queries.

A `KeySet` gives each key to replay a dense integer id. The `sort_key` of a row packs the id of its
key and its `seq` into one 64-bit integer. Spark sorts by it without comparing rows, and the name of
the key need not travel with the row. Executors unpack it.
"""

from bisect import bisect_right
from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.spark.session import PUSHED_NAMES_MAX

if TYPE_CHECKING:
    from numpy.typing import NDArray

KEY = ["relay", "name"]
NO_KEYS = pa.table({name: pa.array([], pa.string()) for name in KEY})

SEQ_BITS = 42
"""Room for 4 trillion events of one relay; the bits left are enough for 2 million keys."""

SEQ_MASK = (1 << SEQ_BITS) - 1
KEYS_MAX = 1 << (63 - SEQ_BITS)


# Keys on the driver


def collect_keys(rows: DataFrame, by: str, *more: str) -> pa.Table:
    """Collect `relay`, `name` (the column `by`) and `more` of `rows`, which have each key once."""
    return rows.select("relay", F.col(by).alias("name"), *more).toArrow()


def distinct_keys(*tables: pa.Table) -> pa.Table:
    """Return the keys of all `tables`, each once."""
    return pa.concat_tables([table.select(KEY) for table in tables]).group_by(KEY).aggregate([])


def common_keys(table: pa.Table, others: pa.Table) -> pa.Table:
    """Return the rows of `table` whose key is also in `others`."""
    return table.join(others.select(KEY), keys=KEY, join_type="left semi")


def require_capacity(keys: int) -> None:
    """Raise `LakeUnusable` if `keys` exceeds the number of ids in a sort key."""
    if keys > KEYS_MAX:
        raise LakeUnusable(
            f"too many senders or endpoints to replay: {keys:,}, at most {KEYS_MAX:,};"
            " use a lake with fewer relays"
        )


class KeySet:
    """The senders or endpoints to replay, each with a dense integer id. `keys` are distinct."""

    def __init__(self, spark: SparkSession, keys: pa.Table) -> None:
        self.count = keys.num_rows
        require_capacity(self.count)
        in_order = keys.select(KEY).sort_by([(name, "ascending") for name in KEY])
        numbered = in_order.append_column("key_id", pa.array(range(self.count), pa.int64()))
        self._names = pc.unique(keys["name"]).to_pylist() if self.count else []
        self.first_ids = _first_ids(numbered)
        """The first id of each relay, in order: ids of one relay are consecutive."""
        self._rows = spark.createDataFrame(numbered) if self.count else None

    def select(self, rows: DataFrame, by: str) -> DataFrame:
        """Return the rows whose key is in this set, with their `sort_key`. `by` names the key."""
        if self._rows is None:
            return rows.where(F.lit(False)).withColumn("sort_key", F.col("seq"))
        keys = F.broadcast(self._rows.withColumnRenamed("name", by))
        joined = named(rows, by, self._names).join(keys, on=["relay", by], how="inner")
        return joined.withColumn("sort_key", pack("key_id", "seq")).drop("key_id")

    def exclude(self, rows: DataFrame, by: str) -> DataFrame:
        """Return the rows whose key is not in this set. `by` names the key."""
        if self._rows is None:
            return rows
        keys = F.broadcast(self._rows.withColumnRenamed("name", by).drop("key_id"))
        return rows.join(keys, on=["relay", by], how="left_anti")

    def restore(self, rows: DataFrame, by: str) -> DataFrame:
        """Replace the `sort_key` of `rows` by the columns it stands for: `relay`, `by`, `seq`."""
        assert self._rows is not None, "only rows of a key in the set have a sort key"
        keys = F.broadcast(self._rows.withColumnRenamed("name", by))
        numbered = rows.withColumns(
            {
                "key_id": _key_id(),
                "seq": F.col("sort_key").bitwiseAND(F.lit(SEQ_MASK)),
            }
        )
        return numbered.join(keys, on=["key_id"], how="inner").drop("key_id", "sort_key")


def named(rows: DataFrame, by: str, names: Collection[str]) -> DataFrame:
    """Return the rows whose column `by` is one of `names`, or all rows if the names are many.

    Spark reads only pages of a file that may have such rows.
    """
    return rows.where(F.col(by).isin(*names)) if len(names) <= PUSHED_NAMES_MAX else rows


# Sort keys, as columns


def pack(key_id: str, seq: str) -> Column:
    """Return the sort key of columns `key_id` and `seq`."""
    return F.shiftleft(key_id, SEQ_BITS).bitwiseOR(F.col(seq))


def partition_by_key(rows: DataFrame, *then_by: str) -> DataFrame:
    """Put the rows of each key into one partition, and sort each partition by `sort_key`.

    Rows with the same key and `seq` are sorted by `then_by`; without it, sorting is faster.
    """
    return rows.repartition(_key_id()).sortWithinPartitions("sort_key", *then_by)


def _key_id() -> Column:
    return F.shiftright("sort_key", SEQ_BITS)


def _first_ids(numbered: pa.Table) -> list[tuple[int, str]]:
    first = numbered.group_by("relay").aggregate([("key_id", "min")])
    return sorted((row["key_id_min"], row["relay"]) for row in first.to_pylist())


# Sort keys, on executors


def unpack(sort_keys: "NDArray[np.int64]") -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """Return the key ids and the seqs of `sort_keys`."""
    return sort_keys >> SEQ_BITS, sort_keys & SEQ_MASK


def run_bounds(key_ids: "NDArray[np.int64]") -> list[int]:
    """Return where each run of equal ids starts, and the end of the last."""
    starts = np.flatnonzero(key_ids[1:] != key_ids[:-1]) + 1
    return [0, *starts.tolist(), len(key_ids)] if len(key_ids) else [0]


class RelayIndex:
    """Finds the relay of a key, from `KeySet.first_ids`."""

    def __init__(self, first_ids: list[tuple[int, str]]) -> None:
        self._first_ids = [first_id for first_id, _ in first_ids]
        self._relays = [relay for _, relay in first_ids]

    def relay_of(self, key_id: int) -> str:
        """Return the relay of the key with this id."""
        return self._relays[bisect_right(self._first_ids, key_id) - 1]
