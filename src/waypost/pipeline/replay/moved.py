"""Pairs between which the first stage decided otherwise, and what that can mean for tiers.

    relay, sender, goal   whose arrivals, and at whom they aimed
    more                  whether some of them pass that did not

As tables on the driver, like keys.
"""

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.replay.keys import KEY

_PAIR = ["relay", "sender", "goal"]
_BACK = ["relay", "goal", "sender"]
NO_PAIRS = pa.table({name: pa.array([], pa.string()) for name in _PAIR})


def moved_pairs(judged: DataFrame) -> pa.Table:
    """The pairs of arrivals that were `judged` otherwise."""
    changed = judged.where(F.col("passed") == F.col("limited"))
    return changed.groupBy(*_PAIR).agg(F.bool_or("passed").alias("more")).toArrow()


def goals_of(moved: pa.Table) -> pa.Table:
    """The keys of those that `moved` arrivals aimed at."""
    return moved.select(["relay", "goal"]).rename_columns(KEY)


def unsure_pairs(moved: pa.Table, pairs: DataFrame) -> pa.Table:
    """Of `moved` pairs those between which tiers can be others than were recorded. `pairs` are
    those of all arrivals (relay, sender, endpoint).

    What passes now has no tier yet. What does not pass any more was somebody's last word, which
    only matters to one who gets an answer: nobody answers a flooder.
    """
    if not moved.num_rows:
        return moved
    more = moved.filter(moved["more"]).select(_PAIR)
    answering = moved.select(_BACK).rename_columns(["relay", "sender", "endpoint"])
    asked = F.broadcast(pairs.sparkSession.createDataFrame(answering))
    answered = pairs.join(asked, on=["relay", "sender", "endpoint"], how="left_semi")
    back = answered.select("relay", "endpoint", "sender").toArrow().rename_columns(_PAIR)
    return pa.concat_tables([more, back]).group_by(_PAIR).aggregate([])


def of_pairs(rows: DataFrame, pairs: DataFrame) -> DataFrame:
    """Those of `rows` between a sender and a goal of `pairs`, in either direction."""
    both = pairs.unionByName(
        pairs.select("relay", F.col("goal").alias("sender"), F.col("sender").alias("goal"))
    )
    return rows.join(F.broadcast(both.distinct()), on=_PAIR, how="left_semi")
