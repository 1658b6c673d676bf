"""Rounds: the queries that all sections have at the same time are run as one.

A section is a generator. It yields its queries, continues with what they found, and returns its
part of the report. What sections yield at the same time is one round: a union of small results,
collected once: as two halves, at the same time. So Spark runs at most twice as many queries for a
report as its longest section has rounds.
"""

from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from pyspark.sql import Column, DataFrame, Observation, Row
from pyspark.sql import functions as F

from waypost.pipeline.spark.collection import collect_together

_QUERIES_PER_ROUND = 2


class Found(NamedTuple):
    """The rows of a query; `more` were left out. `sums` include those."""

    rows: list[Row]
    more: int = 0
    sums: Mapping[str, int] = {}


class Query:
    """Rows to collect: all of them, in any order, or the first `most` in `order`.

    In the latter case, the columns `sums` are summed over all rows.
    """

    def __init__(
        self,
        rows: DataFrame,
        most: int | None = None,
        *order: Column,
        sums: Sequence[str] = (),
    ) -> None:
        self._most, self._sums, self._seen = most, sums, Observation()
        self.rows = rows
        if most is not None:
            totals = (F.sum(name).alias(name) for name in sums)
            counted = rows.observe(self._seen, F.count(F.lit(1)).alias("rows"), *totals)
            self.rows = counted.orderBy(*order).limit(most)

    def found(self, rows: list[Row]) -> Found:
        """Return the result, given the collected rows."""
        if self._most is None:
            return Found(rows)
        if len(rows) < self._most:
            return Found(rows, 0, {name: sum(row[name] for row in rows) for name in self._sums})
        seen = self._seen.get
        return Found(rows, seen["rows"] - len(rows), seen)


Part = TypeVar("Part")
Section = Generator[Sequence[Query], Sequence[Found], Part]
"""A section that returns its part of the report."""


def run_sections(sections: Mapping[str, Section[Any]]) -> dict[str, Any]:
    """Run all sections side by side, a round at a time; returns their parts by name."""
    parts: dict[str, Any] = {}
    found: dict[str, Sequence[Found] | None] = dict.fromkeys(sections)
    while found:
        wanted: dict[str, Sequence[Query]] = {}
        for name, given in found.items():
            try:
                section = sections[name]
                wanted[name] = next(section) if given is None else section.send(given)
            except StopIteration as end:
                parts[name] = end.value
        found = _run_round(wanted)
    return parts


def _run_round(wanted: Mapping[str, Sequence[Query]]) -> dict[str, Sequence[Found] | None]:
    if not wanted:
        return {}
    queries = [one for some in wanted.values() for one in some]
    collected = collect_together([one.rows for one in queries], _QUERIES_PER_ROUND)
    each = (one.found(rows) for one, rows in zip(queries, collected, strict=True))
    return {name: [next(each) for _ in some] for name, some in wanted.items()}
