"""Keys of senders and endpoints, each of a relay, as tables on the driver.

They are few next to what is said about them. A query that asks for them begins with them then, and
not with all that was done to find them.
"""

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

KEY = ["relay", "name"]
NO_KEYS = pa.table({name: pa.array([], pa.string()) for name in KEY})


def keys_of(rows: DataFrame, by: str, *more: str) -> pa.Table:
    """`relay`, `name` (which is in `by`) and `more` of `rows`, which have each key once."""
    return rows.select("relay", F.col(by).alias("name"), *more).toArrow()


def distinct(*tables: pa.Table) -> pa.Table:
    """The keys of all `tables`, each once."""
    return pa.concat_tables([table.select(KEY) for table in tables]).group_by(KEY).aggregate([])


def among(table: pa.Table, others: pa.Table) -> pa.Table:
    """The rows of `table` whose key is in `others`."""
    return table.join(others.select(KEY), keys=KEY, join_type="left semi")
