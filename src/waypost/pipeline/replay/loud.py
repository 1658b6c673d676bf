"""Who has to be looked at, and when.

Rule 1  An endpoint is loud if its own numbers say so, or if the first stage changed anything about
        mail to it, or, where tiers count, about mail from it.
Rule 2  Where tiers stand, an endpoint that is loud by its own numbers is so at times (`busy.py`).
        Every other one is replayed as a whole. So are all, if times would save little.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.replay.arrivals import LIMITED
from waypost.pipeline.replay.busy import Spans
from waypost.pipeline.replay.eras import Eras
from waypost.pipeline.replay.settled import COUNTS, endpoint_facts, pair_facts, sender_facts

_WORTH_IT = 0.2
"""The share of all arrivals that endpoints must have to be looked at by times: finding those costs
about as much as replaying so many."""

EVER = 0
"""The span of what is replayed as a whole."""

Keep = Callable[[DataFrame], DataFrame]


class Loud:
    """The senders and endpoints of `events` that need a replay. Whom the first stage adds is told
    by `hear`, before anything is asked about endpoints."""

    def __init__(self, events: DataFrame, eras: Eras, keep: Keep, *, shortcut: bool) -> None:
        self._events = events
        self._eras = eras
        self._keep = keep
        pairs = keep(pair_facts(events, eras))
        senders, endpoints = sender_facts(pairs), endpoint_facts(pairs)
        if not shortcut:
            senders = senders.withColumn("loud", F.lit(True))
            endpoints = endpoints.withColumn("loud", F.lit(True))
        whole = F.col("whole") | F.lit(not (shortcut and eras.tiers_stand()))
        self.endpoints = endpoints.withColumn("whole", whole)
        sums = [F.coalesce(F.sum(name), F.lit(0)).alias(name) for name in COUNTS]
        everyone, loud = F.count(F.lit(1)), F.count_if("loud")
        at_times = F.col("loud") & ~F.col("whole")
        self.totals: dict[str, int] = (
            senders.agg(*sums, everyone.alias("senders"), loud.alias("loud")).collect()[0].asDict()
        )
        self.endpoint_totals: dict[str, int] = (
            self.endpoints.agg(
                everyone.alias("endpoints"),
                F.coalesce(F.sum("redriven"), F.lit(0)).alias("redriven"),
                F.coalesce(F.sum(F.when(at_times, F.col("arrivals"))), F.lit(0)).alias("at_times"),
            )
            .collect()[0]
            .asDict()
        )
        self._senders = senders.where("loud").select("relay", "sender")
        if self.endpoint_totals["at_times"] < _WORTH_IT * self.totals["lines"]:
            self.endpoints = self.endpoints.withColumn("whole", F.lit(True))
            self.endpoint_totals["at_times"] = 0

    def hear(self, changed: DataFrame | None) -> None:
        """Find the endpoints; `changed` are arrivals that the first stage decided otherwise."""
        own = self.endpoints.where(F.col("loud") & F.col("whole"))
        whole = own.select("relay", F.col("endpoint").alias("goal"))
        if changed is not None:
            moved = changed.where(F.col("goal") != "").select("relay", "goal")
            if self._eras.tiers_count():
                moved = moved.unionByName(changed.select("relay", F.col("sender").alias("goal")))
            # Not every sender has a mailbox.
            known = self.endpoints.select("relay", F.col("endpoint").alias("goal"))
            moved = moved.distinct().join(known, on=["relay", "goal"], how="left_semi")
            whole = whole.unionByName(moved).distinct()
        found = [tuple(row) for row in whole.collect()]
        self.whole_count = len(found)
        self._whole = self._events.sparkSession.createDataFrame(found, whole.schema)
        self._find_spans()

    def _find_spans(self) -> None:
        self._spans: Spans | None = None
        self.at_times_count = 0
        if self.endpoint_totals["at_times"]:
            mine = self.endpoints.where(F.col("loud") & ~F.col("whole"))
            known = F.broadcast(self._whole.withColumnRenamed("goal", "endpoint"))
            mine = mine.join(known, on=["relay", "endpoint"], how="left_anti")
            self._spans = Spans(self._events, self._eras, mine, self.totals["lines"])
            self._spans.rows = self._keep(self._spans.rows)
            self.at_times_count = self._spans.rows.select("relay", "goal").distinct().count()

    @property
    def limited(self) -> int:
        """Arrivals that history's rate limits refused."""
        return self.totals[LIMITED]

    def by_loud(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` whose sender is loud."""
        return matched(rows, self._senders, "sender", "left_semi")

    def by_others(self, rows: DataFrame, besides: Column | None = None) -> DataFrame:
        """Those of `rows` whose sender is not, and those that fulfil `besides`."""
        if not self.totals["loud"]:
            return rows
        if besides is None:
            return matched(rows, self._senders, "sender", "left_anti")
        marked = matched(rows, self._senders.withColumn("loud", F.lit(True)), "sender", "left")
        return marked.where(besides | F.col("loud").isNull()).drop("loud")

    def at_whole(self, rows: DataFrame, by: str = "goal") -> DataFrame:
        """Those of `rows` at an endpoint that is replayed as a whole."""
        return matched(rows, self._whole.withColumnRenamed("goal", by), by, "left_semi")

    def not_at_whole(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` at other endpoints."""
        return matched(rows, self._whole, "goal", "left_anti")

    def at_any(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` at an endpoint of which anything is replayed, and some more."""
        loud = self.endpoints.where("loud").select("relay", F.col("endpoint").alias("goal"))
        return matched(rows, loud.unionByName(self._whole), "goal", "left_semi")

    def to_replay(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` that are replayed, with the `span` they belong to."""
        ever = F.lit(EVER).cast("bigint")
        if self._spans is None:
            return self.at_whole(rows).withColumn("span", ever)
        if not self.whole_count:
            return self._spans.inside(rows)
        whole = self._whole.withColumn("ever", ever)
        both = self._spans.beside(matched(rows, whole, "goal", "left"))
        span = F.coalesce("ever", "span")
        return both.withColumn("span", span).where(F.col("span").isNotNull()).drop("ever")

    def left_alone(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` that are not replayed."""
        elsewhere = self.not_at_whole(rows)
        return elsewhere if self._spans is None else self._spans.outside(elsewhere)


def matched(rows: DataFrame, few: DataFrame, by: str, how: str) -> DataFrame:
    """`rows` joined with `few`, which have `relay` and `by`."""
    return rows.join(F.broadcast(few), on=["relay", by], how=how)
