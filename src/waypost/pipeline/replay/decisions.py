"""Decisions of a replay, put together from the results of its stages.

An arrival gets its new decision from the stage that rejects it, or from its inbox. Arrivals that no
stage replays keep the recorded decision.
"""

from dataclasses import dataclass
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from waypost.pipeline.replay.arrivals import (
    DECISION_COLUMNS,
    LIMITED,
    arrivals_of,
    replayable_arrivals,
)
from waypost.pipeline.replay.keys import KeySet
from waypost.pipeline.replay.rate_stage import RateResult
from waypost.pipeline.replay.screening import Affected
from waypost.pipeline.replay.tier_stage import TierResult


@dataclass(frozen=True)
class Replay:
    """The results of all stages. `inboxes` are arrivals at the replayed `endpoints`."""

    events: DataFrame
    output_columns: tuple[str, ...]
    affected: Affected
    rated: RateResult
    tiers: TierResult
    endpoints: KeySet
    inboxes: DataFrame

    def changes(self) -> DataFrame:
        """Return the arrivals whose decision changed, with `new_reason`."""
        rows, reason = self.rated.rows, F.col("sender_reason")
        # An arrival that passes now and has an endpoint is among the results of its inbox.
        nowhere = F.col("endpoint") == ""
        return self._union(
            (rows.where((reason != "") & (reason != F.col("old_reason"))), reason),
            (rows.where((reason == "") & F.col("limited") & nowhere), F.lit("")),
            (self.inboxes.where("new_reason != old_reason"), F.col("new_reason")),
        )

    def decisions(self) -> DataFrame:
        """Return every arrival with its recorded and its replayed decision."""
        events, rated = self.events, self.rated
        recorded, nowhere = F.col("old_reason"), F.col("endpoint") == ""
        unaffected = rated.senders.exclude(replayable_arrivals(events), by="sender")
        passed = self.tiers.replace(rated.passed(events))
        rows = self._union(
            (arrivals_of(events).where("not_replayed"), recorded),
            (unaffected.where(F.col("limited") | nowhere), recorded),
            (self.endpoints.exclude(passed, by="endpoint"), recorded),
            (rated.rows.where("sender_reason != ''"), F.col("sender_reason")),
            (rated.rows.where((F.col("sender_reason") == "") & nowhere), F.lit("")),
            (self.inboxes, F.col("new_reason")),
        )
        return _as_decisions(rows)

    def _union(self, *parts: tuple[DataFrame, Column]) -> DataFrame:
        columns = (*DECISION_COLUMNS, *self.output_columns)
        selected = [rows.select(*columns, new.alias("new_reason")) for rows, new in parts]
        return reduce(DataFrame.unionByName, selected)


def _as_decisions(rows: DataFrame) -> DataFrame:
    old, new = F.col("old_reason"), F.col("new_reason")
    # An arrival that no rate limit lets pass has no endpoint.
    nowhere = (old == LIMITED) & (new == LIMITED)
    return rows.select(
        "relay",
        "seq",
        "id",
        "sender",
        "subject",
        F.when(nowhere, "").otherwise(F.col("endpoint")).alias("endpoint"),
        "tier",
        F.when(old == "", "accepted").otherwise("rejected").alias("old"),
        F.nullif(old, F.lit("")).alias("old_reason"),
        F.when(new == "", "accepted").otherwise("rejected").alias("new"),
        F.nullif(new, F.lit("")).alias("new_reason"),
        (old != new).alias("changed"),
    )
