"""Table schemas written as in SQL: `name type, …`.

Spark's own parser of such text needs a running session; schemas are defined before there is one.
"""

from collections.abc import Mapping

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


def with_comments(schema: StructType, comments: Mapping[str, str]) -> StructType:
    """Return a schema whose fields carry comments; a key may name several columns, `a, b`."""
    known = {"day": "the UTC day", "relay": "name of the relay in the lake"}
    for names, text in comments.items():
        several = names.split(", ")
        known |= dict.fromkeys(several, text if len(several) == 1 else f"{names}: {text}")
    return StructType(
        [
            StructField(
                field.name,
                field.dataType,
                metadata={"comment": known[field.name]} if field.name in known else {},
            )
            for field in schema
        ]
    )
