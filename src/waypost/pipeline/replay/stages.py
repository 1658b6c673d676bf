"""The three stages, one after another, for whom the shortcut leaves anything to do.

    all arrivals ──► settled senders ───────────────────┐
                 └─► loud senders ──► by sender ──► passed, or rate_limited
                                                        │
                          settled endpoints: as it was ◄┤
                                                        └─► loud endpoints ──► by pair ──►
                                                            by recipient, with movements ──► reason

Rule 1  An endpoint is loud if its own numbers say so, or if the first stage or the second changed
        anything about mail to it.
Rule 2  A recorded tier stands as long as nothing it depends on is different.
"""

from functools import reduce

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.replay.arrivals import (
    JUDGED,
    LIMITED,
    SHOWN,
    TOLD,
    arrivals_of,
    with_goals,
)
from waypost.pipeline.replay.inbox_stage import judge_inboxes
from waypost.pipeline.replay.keys import KEY, NO_KEYS, among, distinct, keys_of
from waypost.pipeline.replay.loud import Loud, require_room
from waypost.pipeline.replay.moved import NO_PAIRS, goals_of, moved_pairs, of_pairs, unsure_pairs
from waypost.pipeline.replay.rate_stage import judge_senders
from waypost.pipeline.replay.screening import COUNTS, endpoint_facts, pair_facts, sender_facts
from waypost.pipeline.replay.settings_timeline import Eras
from waypost.pipeline.replay.steps import as_steps, as_stopped, steps_of
from waypost.pipeline.replay.tier_stage import changed_tiers, restored_pairs

_FEW = 500_000
"""So many rows are sent to whoever looks something up in them."""


class Replay:
    """A replay under way. What several steps read is kept until `close`.

    With `shown`, what `decisions` needs of every arrival is carried along.
    """

    def __init__(
        self, events: DataFrame, eras: Eras, *, shortcut: bool = True, shown: bool = False
    ) -> None:
        self._spark = events.sparkSession
        self._events = events
        self._eras = eras
        self._shortcut = shortcut
        self._shown = shown
        self._columns = (*JUDGED, *SHOWN) if shown else JUDGED
        self._told = (*TOLD, *SHOWN) if shown else TOLD
        self._kept: list[DataFrame] = []
        self._arrivals = _judgeable(events)
        self._find_loud()
        self._judge_senders()
        self._find_tiers()
        self._judge_inboxes()

    def close(self) -> None:
        """Let go of what was kept."""
        for rows in self._kept:
            rows.unpersist()

    def replayed(self) -> tuple[int, int, int, int]:
        """Senders, those replayed step by step, endpoints, and those replayed step by step."""
        senders, endpoints = self._loud_senders.count, self._loud_endpoints.count
        return self.totals["senders"], senders, self._endpoints.num_rows, endpoints

    def changed(self) -> DataFrame:
        """Arrivals that would have been decided otherwise, with `new_reason`."""
        stopped = self._judged.where(~F.col("passed") & ~F.col("limited"))
        # Only those that nobody waits for: the others are in the results of the inboxes.
        through = self._judged.where(F.col("passed") & F.col("limited") & (F.col("goal") == ""))
        otherwise = self._inboxes.where(F.col("new_reason") != F.col("old_reason"))
        return _all(
            stopped.select(*self._told, F.lit(LIMITED).alias("new_reason")),
            through.select(*self._told, F.lit("").alias("new_reason")),
            otherwise.select(*self._told, "new_reason"),
        )

    def decisions(self) -> DataFrame:
        """Every arrival with what was decided and what would have been."""
        as_it_was = F.col("old_reason").alias("new_reason")
        settled = self._loud_senders.others(self._arrivals, by="sender")
        elsewhere = self._loud_endpoints.others(self._with_tiers(self._passed()), by="goal")
        unjudged = _all(
            arrivals_of(self._events).where("kept").select(*self._told),
            settled.where(F.col("limited") | (F.col("goal") == "")).select(*self._told),
            elsewhere.select(*self._told),
        )
        nobody = self._judged.where(F.col("passed") & (F.col("goal") == ""))
        rows = _all(
            unjudged.select(*self._told, as_it_was),
            self._judged.where(~F.col("passed")).select(
                *self._told, F.lit(LIMITED).alias("new_reason")
            ),
            nobody.select(*self._told, F.lit("").alias("new_reason")),
            self._inboxes.select(*self._told, "new_reason"),
        )
        return _as_decisions(rows)

    # Who has to be looked at

    def _find_loud(self) -> None:
        self._pairs = self._keep(pair_facts(self._events, self._eras))
        senders, endpoints = sender_facts(self._pairs), endpoint_facts(self._pairs)
        if not self._shortcut:
            senders = senders.withColumn("loud", F.lit(True))
            endpoints = endpoints.withColumn("loud", F.lit(True))
        of_senders = senders.agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS),
            F.count(F.lit(1)).alias("senders"),
            F.count_if("loud").alias("loud"),
        )
        # One after another: the second finds the pairs in memory.
        self.totals: dict[str, int] = of_senders.collect()[0].asDict()
        self._endpoints = keys_of(endpoints, "endpoint", "redriven", "loud")
        require_room(self.totals["loud"])
        loud = keys_of(senders.where("loud"), "sender") if self.totals["loud"] else NO_KEYS
        self._loud_senders = Loud(self._spark, loud)

    # The first stage

    def _judge_senders(self) -> None:
        rows = _judgeable(self._loud_senders.of(self._events, by="sender"))
        if self._loud_senders.count and self.totals[LIMITED]:
            known = self._spark.createDataFrame(self._endpoints.select(KEY))
            rows = with_goals(rows, known.withColumnRenamed("name", "subject"))
        rows = rows.select(*self._columns, "place")
        self._moved = NO_PAIRS
        """Whose arrivals this stage decided otherwise, and at whom they aimed."""
        if not self._loud_senders.count:
            self._judged = _none(rows.withColumn("passed", F.lit(True)))
            return
        told = self._eras.for_executors(self._loud_senders.firsts)
        self._judged = self._keep(judge_senders(rows, told))
        self._moved = moved_pairs(self._judged)

    def _passed(self) -> DataFrame:
        """Arrivals that their sender's limit lets pass, and that have a goal."""
        settled = self._loud_senders.others(self._arrivals.where(~F.col("limited")), by="sender")
        return _all(
            settled.select(*self._columns), self._judged.where("passed").select(*self._columns)
        ).where(F.col("goal") != "")

    # The second stage

    def _find_tiers(self) -> None:
        self._tiers: DataFrame | None = None
        """Of arrivals whose tier is another one than was recorded, if any."""
        loud = self._endpoints.filter(self._endpoints["loud"])
        retiered = self._retiered() if self._eras.tiers_count() else NO_KEYS
        touched = distinct(goals_of(self._moved), retiered)
        self._loud_endpoints = Loud(self._spark, distinct(loud, among(self._endpoints, touched)))

    def _retiered(self) -> pa.Table:
        """Find other tiers, and give the keys of endpoints that their recorded ones spoke for."""
        stand = self._shortcut and self._eras.tiers_stand()
        unsure = unsure_pairs(self._moved, self._pairs) if stand else NO_PAIRS
        if stand and not unsure.num_rows:
            return NO_KEYS
        passed, told = self._passed(), restored_pairs(self._events)
        if stand:
            pairs = self._spark.createDataFrame(unsure)
            passed, told = of_pairs(passed, pairs), of_pairs(told, pairs)
        tiers = self._keep(changed_tiers(self._eras.attach(passed), told))
        by_goal = tiers.groupBy("relay", F.col("goal").alias("name")).agg(
            F.count(F.lit(1)).alias("arrivals"), F.bool_or("tier_known").alias("known")
        )
        goals = by_goal.toArrow()
        if not goals.num_rows:
            return NO_KEYS
        few = pc.sum(goals["arrivals"]).as_py() <= _FEW
        tiers = tiers.select("relay", "seq", "new_tier")
        self._tiers = F.broadcast(tiers) if few else tiers
        return goals.filter(goals["known"])

    def _with_tiers(self, rows: DataFrame) -> DataFrame:
        """`rows` with the tiers they would have had."""
        if self._tiers is None:
            return rows
        joined = rows.join(self._tiers, on=["relay", "seq"], how="left")
        return joined.withColumn("tier", F.coalesce("new_tier", "tier")).drop("new_tier")

    # The third stage

    def _judge_inboxes(self) -> None:
        loud = self._loud_endpoints
        if not loud.count:
            self._inboxes = _none(self._judged.withColumn("new_reason", F.lit("")))
            return
        rows = self._eras.attach(self._with_tiers(self._steps()))
        told = self._eras.for_executors(loud.firsts)
        shown = SHOWN if self._shown else ()
        judged = judge_inboxes(rows, told, shown, everything=self._shown)
        self._inboxes = loud.named(judged, by="goal")
        if self._shown:
            self._keep(self._inboxes)  # they are asked for twice

    def _steps(self) -> DataFrame:
        """What loud inboxes go through, with their `place` and in no order."""
        loud = self._loud_endpoints
        columns = (*self._columns, "place")
        # Whose step it is comes first: most are nobody's that matters here.
        mine = loud.of(self._events, by="endpoint")
        told = steps_of(mine, columns, leases=self._eras.evicts())
        judged = loud.of(self._judged.where(F.col("goal") != ""), by="goal")
        passed = as_steps(judged.where("passed")).select(*told.columns)
        steps = _all(self._loud_senders.others(told, by="sender"), passed)
        if not pc.max(self._endpoints["redriven"]).as_py():
            return steps
        return _all(steps, as_stopped(judged.where("not passed")).select(*told.columns))

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._kept.append(rows.persist())
        return self._kept[-1]


def _judgeable(events: DataFrame) -> DataFrame:
    return arrivals_of(events).where(~F.col("kept"))


def _all(*rows: DataFrame) -> DataFrame:
    return reduce(DataFrame.unionByName, rows)


def _none(rows: DataFrame) -> DataFrame:
    return rows.where(F.lit(False))


def _as_decisions(rows: DataFrame) -> DataFrame:
    old, new = F.col("old_reason"), F.col("new_reason")
    # What never got past its sender's limit arrived nowhere.
    nowhere = (old == LIMITED) & (new == LIMITED)
    return rows.select(
        *("relay", "seq", "id", "sender", "subject"),
        F.when(nowhere, "").otherwise(F.col("goal")).alias("endpoint"),
        "tier",
        F.when(old == "", "accepted").otherwise("rejected").alias("old"),
        F.nullif(old, F.lit("")).alias("old_reason"),
        F.when(new == "", "accepted").otherwise("rejected").alias("new"),
        F.nullif(new, F.lit("")).alias("new_reason"),
        (old != new).alias("changed"),
    )
