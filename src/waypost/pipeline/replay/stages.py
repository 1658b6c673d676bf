"""The three stages, one after another, for whom the shortcut leaves anything to do.

    all arrivals ──► settled senders ───────────────────┐
                 └─► loud senders ──► by sender ──► passed, or rate_limited
                                                        │
                          settled endpoints: as it was ◄┤
                                                        └─► loud endpoints ──► by pair ──►
                                                            by recipient, with movements ──► reason

Rule 1  An endpoint is loud if its own numbers say so, or if the first stage changed anything about
        mail to it, or, where tiers count, about mail from it.
Rule 2  A recorded tier stands as long as nothing it depends on is different.
"""

from functools import reduce

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
from waypost.pipeline.replay.eras import Eras
from waypost.pipeline.replay.inboxes import judge_inboxes
from waypost.pipeline.replay.loud import Loud
from waypost.pipeline.replay.pairs import changed_tiers, restored_pairs
from waypost.pipeline.replay.senders import judge_senders
from waypost.pipeline.replay.settled import COUNTS, endpoint_facts, pair_facts, sender_facts
from waypost.pipeline.replay.steps import as_steps, as_stopped, steps_of

_FEW = 500_000
"""So many rows are sent to whoever looks something up in them."""


class Replay:
    """A replay under way. What several steps read is kept until `close`.

    With `shown`, what `decisions` needs of every arrival is carried along.
    """

    def __init__(
        self, events: DataFrame, eras: Eras, *, shortcut: bool = True, shown: bool = False
    ) -> None:
        self._events = events
        self._eras = eras
        self._shortcut = shortcut
        self._shown = shown
        self._columns = (*JUDGED, *SHOWN) if shown else JUDGED
        self._told = (*TOLD, *SHOWN) if shown else TOLD
        self._kept: list[DataFrame] = []
        self._arrivals = arrivals_of(events).where(~F.col("kept"))
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
        totals = self.totals
        return totals["senders"], totals["loud"], totals["endpoints"], self._loud_endpoints.count

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
        pairs = self._keep(pair_facts(self._events, self._eras))
        senders, endpoints = sender_facts(pairs), endpoint_facts(pairs)
        if not self._shortcut:
            senders = senders.withColumn("loud", F.lit(True))
            endpoints = endpoints.withColumn("loud", F.lit(True))
        everyone = F.count(F.lit(1))
        of_senders = senders.agg(
            *(F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS),
            everyone.alias("senders"),
            F.count_if("loud").alias("loud"),
        )
        of_endpoints = endpoints.agg(
            F.coalesce(F.sum("redriven"), F.lit(0)).alias("redriven"),
            everyone.alias("endpoints"),
            F.count_if("loud").alias("loud_endpoints"),
        )
        # One after another: the second finds the pairs in memory.
        self.totals: dict[str, int] = {
            **of_senders.collect()[0].asDict(),
            **of_endpoints.collect()[0].asDict(),
        }
        loud = senders.where("loud").select("relay", F.col("sender").alias("name"))
        self._loud_senders = Loud(loud if self.totals["loud"] else None, self._keep)
        self._endpoints = endpoints.select("relay", F.col("endpoint").alias("name"), "loud")

    # The first stage

    def _judge_senders(self) -> None:
        rows = self._loud_senders.of(self._arrivals, by="sender")
        if self.totals[LIMITED]:
            known = self._endpoints.select("relay", F.col("name").alias("subject"))
            rows = with_goals(rows, known)
        rows = rows.select(*self._columns, "place")
        self._moved: DataFrame | None = None
        """Senders and goals of arrivals that this stage decided otherwise, if any."""
        if self._loud_senders.count:
            told = self._eras.for_executors(self._loud_senders.firsts)
            self._judged = self._keep(judge_senders(rows, told))
            changed = self._judged.where(F.col("passed") == F.col("limited"))
            moved = self._keep(changed.select("relay", "sender", "goal").distinct())
            self._moved = moved if moved.count() else None
        else:
            self._judged = _none(rows.withColumn("passed", F.lit(True)))
        self._loud_endpoints = Loud(self._endpoints_to_replay(), self._keep)

    def _endpoints_to_replay(self) -> DataFrame | None:
        loud = self._endpoints.where("loud").select("relay", "name")
        if self._moved is None:
            return loud if self.totals["loud_endpoints"] else None
        touched = self._moved.select("relay", F.col("goal").alias("name"))
        if self._eras.tiers_count():
            senders = self._moved.select("relay", F.col("sender").alias("name"))
            touched = touched.unionByName(senders)
        # Not every sender has a mailbox.
        touched = touched.join(self._endpoints, on=["relay", "name"], how="left_semi")
        return loud.unionByName(touched).distinct()

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
        stand = self._shortcut and self._eras.tiers_stand()
        if not self._eras.tiers_count() or (stand and self._moved is None):
            return
        passed, told = self._passed(), restored_pairs(self._events)
        if stand and self._moved is not None:
            passed, told = _of_pairs(passed, self._moved), _of_pairs(told, self._moved)
        tiers = self._keep(changed_tiers(self._eras.attach(passed), told))
        count = tiers.count()
        if count:
            self._tiers = F.broadcast(tiers) if count <= _FEW else tiers

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
        steps = loud.of(self._steps(), by="goal")
        rows = self._eras.attach(self._with_tiers(steps))
        told = self._eras.for_executors(loud.firsts)
        shown = SHOWN if self._shown else ()
        judged = judge_inboxes(rows, told, shown, everything=self._shown)
        self._inboxes = self._keep(loud.named(judged, by="goal"))

    def _steps(self) -> DataFrame:
        """What all inboxes go through, in no order."""
        told = steps_of(self._events, self._columns, leases=self._eras.evicts())
        steps = _all(
            self._loud_senders.others(told, by="sender"),
            as_steps(self._judged.where(F.col("passed") & (F.col("goal") != ""))).select(
                *told.columns
            ),
        )
        if not self.totals["redriven"]:
            return steps
        stopped = self._judged.where(~F.col("passed") & (F.col("goal") != ""))
        return _all(steps, as_stopped(stopped).select(*told.columns))

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._kept.append(rows.persist())
        return self._kept[-1]


def _all(*rows: DataFrame) -> DataFrame:
    return reduce(DataFrame.unionByName, rows)


def _none(rows: DataFrame) -> DataFrame:
    return rows.where(F.lit(False))


def _of_pairs(rows: DataFrame, pairs: DataFrame) -> DataFrame:
    """Those of `rows` between a sender and a goal of `pairs`, in either direction."""
    both = pairs.unionByName(
        pairs.select("relay", F.col("goal").alias("sender"), F.col("sender").alias("goal"))
    )
    return rows.join(F.broadcast(both.distinct()), on=["relay", "sender", "goal"], how="left_semi")


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
