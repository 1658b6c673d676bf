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

from waypost.pipeline.replay.arrivals import JUDGED, LIMITED, SHOWN, arrivals_of, with_goals
from waypost.pipeline.replay.eras import Eras
from waypost.pipeline.replay.inboxes import judge_inboxes, movements_of, redriven_of
from waypost.pipeline.replay.pairs import restored_pairs, with_tiers
from waypost.pipeline.replay.senders import judge_senders
from waypost.pipeline.replay.settled import endpoint_facts, sender_facts
from waypost.policy.verdicts import Reason

_COUNTS = ("lines", "counted", *(reason.value for reason in Reason))


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
        self._find_loud()
        self._judge_senders()
        self._judge_inboxes()

    def close(self) -> None:
        """Let go of what was kept."""
        for rows in self._kept:
            rows.unpersist()

    def replayed(self) -> tuple[int, int, int, int]:
        """Senders, those replayed step by step, endpoints, and those replayed step by step."""
        endpoints = self._endpoint_totals["endpoints"]
        return self.totals["senders"], self.totals["loud"], endpoints, self._loud_count

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
        settled = self._of_settled(self._arrivals.where(~F.col("kept")))
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
            self._at_settled(self._tiered).select(*self._columns, as_it_was),
            self._inboxes.select(*self._columns, "new_reason"),
        )
        return _as_decisions(rows)

    # Who has to be looked at

    def _find_loud(self) -> None:
        senders = self._keep(sender_facts(self._events, self._eras))
        endpoints = self._keep(endpoint_facts(self._events, self._eras))
        sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in _COUNTS]
        everyone = F.count(F.lit(1))
        loud = F.count_if("loud") if self._shortcut else everyone
        self.totals: dict[str, int] = (
            senders.agg(*sums, everyone.alias("senders"), loud.alias("loud")).collect()[0].asDict()
        )
        self._endpoint_totals: dict[str, int] = (
            endpoints.agg(
                everyone.alias("endpoints"),
                F.coalesce(F.sum("redriven"), F.lit(0)).alias("redriven"),
            )
            .collect()[0]
            .asDict()
        )
        self._loud_senders = senders.where("loud").select("relay", "sender")
        self._endpoints = endpoints

    # The first stage

    def _judge_senders(self) -> None:
        rows = self._of_loud(self._arrivals.where(~F.col("kept")))
        if self.totals[LIMITED]:
            known = self._endpoints.select("relay", F.col("endpoint").alias("subject"))
            rows = with_goals(rows, known)
        if self.totals["loud"]:
            self._judged = self._keep(judge_senders(rows.select(*self._columns), self._told))
        else:
            self._judged = _none(rows.select(*self._columns, F.lit(True).alias("passed")))
        changed = self._judged.where(F.col("passed") == F.col("limited"))
        self._moved = changed.count() if self.totals["loud"] else 0
        loud = self._endpoints.where("loud").select("relay", F.col("endpoint").alias("goal"))
        if self._moved:
            loud = loud.unionByName(changed.where(F.col("goal") != "").select("relay", "goal"))
        if self._moved and self._tiers_count():
            loud = loud.unionByName(changed.select("relay", F.col("sender").alias("goal")))
            # Not every sender has a mailbox.
            known = self._endpoints.select("relay", F.col("endpoint").alias("goal"))
            loud = loud.join(known, on=["relay", "goal"], how="left_semi")
        self._loud_endpoints = self._keep(loud.distinct()) if self._moved else loud
        self._loud_count = (
            self._loud_endpoints.count() if self._shortcut else self._endpoint_totals["endpoints"]
        )

    # The second and third stage

    def _judge_inboxes(self) -> None:
        settled = self._arrivals.where(~F.col("kept") & ~F.col("limited"))
        passed = _all(
            self._of_settled(settled).select(*self._columns),
            self._judged.where("passed").select(*self._columns),
        ).where(F.col("goal") != "")
        arriving = self._with_tiers(passed)
        if not self._loud_count:
            self._inboxes = _none(passed.select(*self._columns, F.lit("").alias("new_reason")))
            return
        told = self._at_loud(movements_of(self._events, leases=self._evicts()))
        if self._endpoint_totals["redriven"]:
            back = redriven_of(self._events, self._at_loud(self._arrivals))
            told = told.unionByName(back, allowMissingColumns=True)
        results = judge_inboxes(arriving, told, self._told)
        self._inboxes = self._keep(results.select(*self._columns, "new_reason"))

    def _with_tiers(self, passed: DataFrame) -> DataFrame:
        """Arrivals at loud endpoints, with their tiers and the hops of their regime."""
        known = tiers_stand(self._eras)
        again = self._tiers_count() and (self._moved or not known or not self._shortcut)
        self._tiered = passed
        needed = (*self._columns, "hops")
        if again and self._shown and not known:
            tiered = with_tiers(self._eras.attach(passed), restored_pairs(self._events))
            self._tiered = self._keep(tiered.select(*needed))
            return self._at_loud(self._tiered)
        here = self._eras.attach(self._at_loud(passed))
        if again:
            answers = self._at_settled(self._at_loud(passed, by="sender"))
            told = self._at_loud(restored_pairs(self._events), by="sender")
            here = with_tiers(here, told.unionByName(answers.select(*told.columns)))
        return here.select(*needed)

    def _tiers_count(self) -> bool:
        return any(era.replayed.qos.enabled for era in self._eras.regimes)

    def _evicts(self) -> bool:
        return any(
            era.replayed.qos.enabled and era.replayed.qos.overflow == "evict_heaviest"
            for era in self._eras.regimes
        )

    # Parts of rows

    def _of_loud(self, rows: DataFrame) -> DataFrame:
        return self._matched(rows, self._loud_senders, "sender", "left_semi")

    def _of_settled(self, rows: DataFrame) -> DataFrame:
        return self._matched(rows, self._loud_senders, "sender", "left_anti")

    def _at_loud(self, rows: DataFrame, by: str = "goal") -> DataFrame:
        loud = self._loud_endpoints.withColumnRenamed("goal", by)
        return self._matched(rows, loud, by, "left_semi")

    def _at_settled(self, rows: DataFrame) -> DataFrame:
        return self._matched(rows, self._loud_endpoints, "goal", "left_anti")

    def _matched(self, rows: DataFrame, loud: DataFrame, by: str, how: str) -> DataFrame:
        if not self._shortcut:
            return rows if how == "left_semi" else _none(rows)
        return rows.join(F.broadcast(loud), on=["relay", by], how=how)

    def _keep(self, rows: DataFrame) -> DataFrame:
        self._kept.append(rows.persist())
        return self._kept[-1]


def _all(*rows: DataFrame) -> DataFrame:
    return reduce(DataFrame.unionByName, rows)


def _none(rows: DataFrame) -> DataFrame:
    return rows.where(F.lit(False))


def tiers_stand(eras: Eras) -> bool:
    """Whether recorded tiers are those a replay would find, if all senders pass as they did."""
    return all(
        not new.enabled
        or (old.enabled and old.bidirectional_window_ms == new.bidirectional_window_ms)
        for old, new in ((era.recorded.qos, era.replayed.qos) for era in eras.regimes)
    )


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
