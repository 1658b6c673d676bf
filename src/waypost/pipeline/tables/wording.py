"""Numbers in sentences."""

from pyspark.sql import Column
from pyspark.sql import functions as F


def number(value: Column) -> Column:
    """4120 as "4,120"."""
    return F.format_number(value, 0)


def counted(value: Column, thing: str) -> Column:
    """ "1 hop", "2 hops", "4,120 hops"."""
    plural = F.when(value == 1, F.lit(f" {thing}")).otherwise(F.lit(f" {thing}s"))
    return F.concat(number(value), plural)


def sentence(*parts: str | Column) -> Column:
    """Words and columns, one after the other."""
    return F.concat(*(F.lit(part) if isinstance(part, str) else part for part in parts))
