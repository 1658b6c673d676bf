"""Collects several small results with few queries, so that their stages run side by side."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import reduce

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F


def collect_together(results: Sequence[DataFrame], queries: int = 1) -> list[list[Row]]:
    """Return the rows of each result. Those of one that ends in a limit keep its order.

    One thread plans a query and compiles its code, so `queries` of them keep as many cores busy.
    """
    queries = min(queries, len(results))
    if queries <= 1:
        return _collect(results)
    shares = [results[first::queries] for first in range(queries)]
    found: list[list[Row]] = [[] for _ in results]
    with ThreadPoolExecutor(queries, thread_name_prefix="collect") as pool:
        for first, rows in enumerate(pool.map(_collect, shares)):
            found[first::queries] = rows
    return found


def _collect(results: Sequence[DataFrame]) -> list[list[Row]]:
    """Collect the union of all results."""
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
