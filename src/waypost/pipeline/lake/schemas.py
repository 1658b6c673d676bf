"""Table schemas written as in SQL: `name type, …`.

Spark's own parser of such text needs a running session; schemas are defined before there is one.
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
    """Return the schema for `name type, …`; a type may be the name of one of `nested`."""
    types = {**_TYPES, **nested}
    pairs = (column.split() for column in text.split(","))
    return StructType([StructField(name, types[kind]) for name, kind in pairs])
