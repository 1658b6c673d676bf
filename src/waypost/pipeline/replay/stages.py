"""The three stages, one after another, for whom the shortcut leaves anything to do.

    all arrivals ──► settled senders ───────────────────┐
                 └─► loud senders ──► by sender ──► passed, or rate_limited
                                                        │
                          settled endpoints: as it was ◄┤
                                                        └─► loud endpoints ──► by pair ──►
                                                            by recipient, with movements ──► reason

Who is loud, and when, is known to `loud.py`. A recorded tier stands as long as nothing it depends
on is different.
"""

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.replay.arrivals import JUDGED, LIMITED, SHOWN, arrivals_of, with_goals
from waypost.pipeline.replay.eras import Eras
from waypost.pipeline.replay.inboxes import (
    REFUSED,
    as_steps,
    judge_inboxes,
    redriven_of,
    steps_of,
)
from waypost.pipeline.replay.loud import EVER, Loud
from waypost.pipeline.replay.pairs import restored_pairs, with_tiers
from waypost.pipeline.replay.senders import judge_senders


class Replay:
    """A replay under way. What several steps read is kept until `close`."""

    def __init__(
        self, events: DataFrame, eras: Eras, *, shortcut: bool = True, shown: bool = False
    ) -> None:
        self._events = events
        self._eras = eras
        self._shortcut = shortcut
        self._columns = (*JUDGED, *SHOWN) if shown else JUDGED
        self._shown = shown
        self._kept: list[DataFrame] = []
        self._told = eras.for_executors()
        self._arrivals = arrivals_of(events)
        self._loud = Loud(events, eras, self._keep, shortcut=shortcut)
        self.totals = self._loud.totals
        self._judge_senders()
        self._judge_inboxes()

    def close(self) -> None:
        """Let go of what was kept."""
        for rows in self._kept:
            rows.unpersist()

    def replayed(self) -> tuple[int, int, int, int, int]:
        """Senders, those replayed step by step, endpoints, those replayed step by step, and how
        many of the latter only at times."""
        senders, loud = self.totals["senders"], self.totals["loud"]
        whole, at_times = self._loud.whole_count, self._loud.at_times_count
        return senders, loud, self._loud.endpoint_totals["endpoints"], whole + at_times, at_times

    def changed(self) -> DataFrame:
        """Arrivals that would have been decided otherwise, with `new_reason`."""
        stopped = self._judged.where(~F.col("passed") & ~F.col("limited"))
        # Only those that nobody waits for: the others are in the results of the inboxes.
        through = self._judged.where(F.col("passed") & F.col("limited") & (F.col("goal") == ""))
        otherwise = self._inboxes.where(F.col("new_reason") != F.col("old_reason"))
        return _all(
            stopped.select(*self._columns, F.lit(LIMITED).alias("new_reason")),
            through.select(*self._columns, F.lit("").alias("new_reason")),
            otherwise.select(*self._columns, "new_reason"),
        )

    def decisions(self) -> DataFrame:
        """Every arrival with what was decided and what would have been."""
        as_it_was = F.col("old_reason").alias("new_reason")
        settled = self._loud.by_others(self._arrivals.where(~F.col("kept")))
        unjudged = _all(
            self._arrivals.where("kept").select(*self._columns),
            settled.where("limited").select(*self._columns),
            settled.where(~F.col("limited") & (F.col("goal") == "")).select(*self._columns),
        )
        nobody = self._judged.where(F.col("passed") & (F.col("goal") == ""))
        rows = _all(
            unjudged.select(*self._columns, as_it_was),
            self._judged.where(~F.col("passed")).select(
                *self._columns, F.lit(LIMITED).alias("new_reason")
            ),
            nobody.select(*self._columns, F.lit("").alias("new_reason")),
            self._loud.left_alone(self._tiered).select(*self._columns, as_it_was),
            self._inboxes.select(*self._columns, "new_reason"),
        )
        return _as_decisions(rows)

    # The first stage

    def _judge_senders(self) -> None:
        rows = self._loud.by_loud(self._arrivals.where(~F.col("kept")))
        if not self.totals["loud"]:
            self._judged = _none(rows.select(*self._columns, F.lit(True).alias("passed")))
            self._moved = False
            self._loud.hear(None)
            return
        if self._loud.limited:
            known = self._loud.endpoints.select("relay", F.col("endpoint").alias("subject"))
            rows = with_goals(rows, known)
        self._judged = self._keep(judge_senders(rows.select(*self._columns), self._told))
        changed = self._judged.where(F.col("passed") == F.col("limited"))
        self._moved = bool(changed.head(1))
        self._loud.hear(changed if self._moved else None)

    # The second and third stage

    def _judge_inboxes(self) -> None:
        settled = self._arrivals.where(~F.col("kept") & ~F.col("limited"))
        passed = _all(
            self._loud.by_others(settled).select(*self._columns),
            self._judged.where("passed").select(*self._columns),
        ).where(F.col("goal") != "")
        self._tiered = passed
        again = self._with_tiers(passed) if self._tiers_again() else None
        if not self._loud.whole_count and not self._loud.at_times_count:
            self._inboxes = _none(passed.select(*self._columns, F.lit("").alias("new_reason")))
            return
        rows = self._eras.attach(self._to_replay(again))
        needed = (*self._columns, "step", "letter", "span", "hops")
        results = judge_inboxes(rows.select(*needed), self._told)
        self._inboxes = self._keep(results.select(*self._columns, "new_reason"))

    def _to_replay(self, again: DataFrame | None) -> DataFrame:
        """What the inboxes go through; `again` are arrivals whose tiers were found anew."""
        loud = self._loud
        told = steps_of(self._events, self._columns, leases=self._eras.evicts())
        passed = self._judged.where(F.col("passed") & (F.col("goal") != ""))
        judged = as_steps(passed.select(*self._columns))
        rows = loud.to_replay(_all(loud.by_others(told, besides=F.col("step") > REFUSED), judged))
        if again is not None:
            rows = rows.where((F.col("span") != EVER) | (F.col("step") > REFUSED))
            anew = as_steps(loud.at_whole(again).select(*self._columns))
            rows = _all(rows, anew.withColumn("span", F.lit(EVER).cast("bigint")))
        if loud.endpoint_totals["redriven"]:
            back = loud.to_replay(redriven_of(self._events, loud.at_any(self._arrivals)))
            rows = rows.unionByName(back, allowMissingColumns=True)
        return rows

    def _tiers_again(self) -> bool:
        changed = self._moved or not self._eras.tiers_stand() or not self._shortcut
        return self._eras.tiers_count() and changed

    def _with_tiers(self, passed: DataFrame) -> DataFrame:
        """Arrivals at least at all endpoints that are replayed as a whole, with their tiers."""
        loud = self._loud
        if self._shown and not self._eras.tiers_stand():
            tiered = with_tiers(self._eras.attach(passed), restored_pairs(self._events))
            self._tiered = self._keep(tiered.select(*self._columns))
            return self._tiered
        here = self._eras.attach(loud.at_whole(passed))
        answers = loud.not_at_whole(loud.at_whole(passed, by="sender"))
        told = loud.at_whole(restored_pairs(self._events), by="sender")
        return with_tiers(here, told.unionByName(answers.select(*told.columns)))

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._kept.append(rows.persist())
        return self._kept[-1]


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
