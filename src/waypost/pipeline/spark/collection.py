"""Collects several small results with one query, so that their stages run side by side."""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F


def collect_together(results: Sequence[DataFrame]) -> list[list[Row]]:
    """Return the rows of each result. Those of one that ends in a limit keep its order."""
    # Each result has a column of its own, null in the rows of the others.
    names = [f"result_{number}" for number in range(len(results))]
    each = [
        rows.select(F.struct("*").alias(name)) for name, rows in zip(names, results, strict=True)
    ]
    union = reduce(lambda some, one: some.unionByName(one, allowMissingColumns=True), each)
    found: list[list[Row]] = [[] for _ in results]
    for row in union.select(*names).collect():
        number, value = next((n, value) for n, value in enumerate(row) if value is not None)
        found[number].append(value)
    return found
