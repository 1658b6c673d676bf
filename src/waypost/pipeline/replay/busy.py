"""When an inbox has to be replayed: not from its first message to its last, but at times.

Whenever history's mailbox is empty, so is the replayed one, if it holds no strays (see `inbox.py`).
From there on a replay can begin with nothing. So an inbox's time falls into periods, each begun by
a message that is accepted while the mailbox is empty. A period is

    troubled   if the numbers recorded in it do not prove that nothing changes
    clean      if it leaves no stray, be it an older one: nothing was refused, evicted or put back
               in it, and its first message was acknowledged, which takes strays along

and a span is periods up to the next clean one. Spans with a troubled period are replayed, each by
itself, and all others are as they were. Where breakers have a say this does not hold: they
remember more than the mailbox does.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from waypost.pipeline.events import ARRIVALS
from waypost.pipeline.replay.arrivals import described
from waypost.pipeline.replay.eras import Eras
from waypost.pipeline.replay.settled import bytes_unproven, expected_reason, judged_at_endpoint

_SLICES = 1024
_SLICE_LEAST = 4096
_KEY = ("relay", "goal")
_TELLING = (*ARRIVALS, "failed", "evicted", "expired", "redriven")


class Spans:
    """The spans to replay of `endpoints` (relay, endpoint, size_most, last_seq), out of `lines`."""

    def __init__(self, events: DataFrame, eras: Eras, endpoints: DataFrame, lines: int) -> None:
        # Rows find their span by the slice of the journal that they are in.
        self._slice = max(_SLICE_LEAST, lines // _SLICES)
        found = _troubled_spans(_marks(events, eras, endpoints))
        ends = F.least("end_seq", F.col("last_seq") + 1)
        self.rows = found.select(
            *_KEY,
            F.col("span"),
            ends.alias("end_seq"),
            F.explode(F.sequence(self._slice_of(F.col("span")), self._slice_of(ends))).alias(
                "slice"
            ),
        )

    def inside(self, rows: DataFrame) -> DataFrame:
        """Those of `rows`, which have `relay`, `goal` and `seq`, that are in a span: `span`."""
        return self._joined(rows, "inner")

    def beside(self, rows: DataFrame) -> DataFrame:
        """All of `rows`, with the `span` they are in, or null."""
        return self._joined(rows, "left")

    def outside(self, rows: DataFrame) -> DataFrame:
        """Those of `rows` that are in none."""
        return self._joined(rows, "left_anti")

    def _joined(self, rows: DataFrame, how: str) -> DataFrame:
        spans = self.rows.select(
            F.col("relay").alias("span_relay"),
            F.col("goal").alias("span_goal"),
            "slice",
            "span",
            "end_seq",
        )
        there = (
            (F.col("relay") == F.col("span_relay"))
            & (F.col("goal") == F.col("span_goal"))
            & (self._slice_of(F.col("seq")) == F.col("slice"))
            & (F.col("seq") >= F.col("span"))
            & (F.col("seq") < F.col("end_seq"))
        )
        joined = rows.join(F.broadcast(spans), on=there, how=how)
        return joined.drop("span_relay", "span_goal", "slice", "end_seq")

    def _slice_of(self, seq: Column) -> Column:
        return F.floor(seq / self._slice)


def _marks(events: DataFrame, eras: Eras, endpoints: DataFrame) -> DataFrame:
    """The events that begin a period, or say something of one."""
    of_kind = F.col("kind")
    lost = of_kind.isin("failed", "evicted") | (
        (of_kind == "expired") & (F.col("was") == "pending")
    )
    arrival = judged_at_endpoint()
    told = described(events.where(of_kind.isin(*_TELLING)))
    told = told.where(arrival | lost | (of_kind == "redriven"))
    few = F.broadcast(endpoints.select("relay", "endpoint", "size_most", "last_seq"))
    rows = eras.attach(told.join(few, on=["relay", "endpoint"], how="inner"))
    fills = F.col("depth") * F.col("size_most") + F.col("size") > bytes_unproven()
    differs = arrival & (expected_reason() != F.col("old_reason"))
    marks = rows.select(
        "relay",
        F.col("endpoint").alias("goal"),
        "seq",
        "last_seq",
        ((of_kind == "accepted") & (F.col("depth") == 0)).alias("begins"),
        (differs | (of_kind == "evicted") | F.coalesce(arrival & fills, F.lit(False))).alias(
            "troubled"
        ),
        (lost | (of_kind == "redriven") | (F.col("old_reason") != "")).alias("unclean"),
    )
    return marks.where(F.col("begins") | F.col("troubled") | F.col("unclean"))


def _troubled_spans(marks: DataFrame) -> DataFrame:
    line = Window.partitionBy(*_KEY).orderBy("seq").rowsBetween(Window.unboundedPreceding, 0)
    periods = (
        marks.withColumn("period", F.sum(F.col("begins").cast("int")).over(line))
        .groupBy(*_KEY, "period")
        .agg(
            F.min("seq").alias("first_seq"),
            F.max("troubled").alias("troubled"),
            F.max("unclean").alias("unclean"),
            F.max("last_seq").alias("last_seq"),
        )
    )
    in_order = Window.partitionBy(*_KEY).orderBy("period")
    before = in_order.rowsBetween(Window.unboundedPreceding, -1)
    clean_before = F.coalesce(F.sum((~F.col("unclean")).cast("int")).over(before), F.lit(0))
    return (
        periods.withColumns({"number": clean_before, "end_seq": F.lead("first_seq").over(in_order)})
        .groupBy(*_KEY, "number")
        .agg(
            # What comes before the first period belongs to the first span.
            F.min(F.when(F.col("period") == 0, 0).otherwise(F.col("first_seq"))).alias("span"),
            F.max(F.coalesce("end_seq", F.col("last_seq") + 1)).alias("end_seq"),
            F.max("troubled").alias("troubled"),
            F.max("last_seq").alias("last_seq"),
        )
        .where("troubled")
    )
