"""Columns of a table, written as SQL writes them.

Spark's own parser of such text needs a running session; tables are described before there is one.
"""

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

_TYPES: dict[str, DataType] = {
    "string": StringType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "array<string>": ArrayType(StringType()),
}


def columns(text: str, **nested: StructType) -> StructType:
    """The schema that `name type, …` stands for; a type may be one of `nested`."""
    types = {**_TYPES, **nested}
    pairs = (column.split() for column in text.split(","))
    return StructType([StructField(name, types[kind]) for name, kind in pairs])
