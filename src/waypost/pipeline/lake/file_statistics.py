"""Statistics of a Parquet file as Delta writes them: rows, nulls, smallest and largest values.

They come from the file's footer; no row is read. Engines use them to skip files, so a bound may be
wider than the values, never narrower.
"""

import math
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from pyspark.sql.types import ArrayType, BooleanType, StructType

if TYPE_CHECKING:
    import pyarrow.fs as pafs  # type: ignore[import-untyped]
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

TEXT_MAX = 64
"""Characters of a bound: a longer smallest text is cut, a longer largest one left out."""

_MS = timedelta(milliseconds=1)


def read_statistics(storage: "pafs.FileSystem", path: str, schema: StructType) -> str:
    """Return the statistics of a file for the columns of `schema`, as JSON. Raises `OSError`."""
    import pyarrow.parquet as pq

    footer = pq.read_metadata(path, filesystem=storage)
    groups = [footer.row_group(number) for number in range(footer.num_row_groups)]
    position = {footer.schema.column(at).path: at for at in range(footer.num_columns)}
    least: dict[str, Any] = {}
    most: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    for field in schema:
        if isinstance(field.dataType, ArrayType):
            continue
        if field.name not in position:  # a column that is newer than the file
            nulls[field.name] = footer.num_rows
            continue
        of_column = [group.column(position[field.name]).statistics for group in groups]
        _add_nulls(field.name, of_column, nulls)
        if not isinstance(field.dataType, BooleanType):
            _add_bounds(field.name, of_column, least, most)
    counted = {"numRecords": footer.num_rows, "minValues": least, "maxValues": most}
    return msgspec.json.encode({**counted, "nullCount": nulls}).decode()


def _add_nulls(name: str, of_column: "list[pq.Statistics | None]", nulls: dict[str, int]) -> None:
    known = [one.null_count for one in of_column if one is not None and one.has_null_count]
    if len(known) == len(of_column):
        nulls[name] = sum(known)


def _add_bounds(
    name: str,
    of_column: "list[pq.Statistics | None]",
    least: dict[str, Any],
    most: dict[str, Any],
) -> None:
    """Add the bounds of a column, unless a group with values has none."""
    bounds = []
    for one in of_column:
        if one is not None and one.has_min_max:
            bounds.append((one.min, one.max))
        elif one is None or one.num_values:
            return
    if not bounds:
        return
    low = _lower(min(low for low, _ in bounds))
    high = _upper(max(high for _, high in bounds))
    if low is not None:
        least[name] = low
    if high is not None:
        most[name] = high


def _lower(value: Any) -> Any:
    """Return a bound at or below `value` as JSON has it; None if there is none."""
    match value:
        case str():
            return value[:TEXT_MAX]
        case datetime():
            return _timestamp(value)
        case _:
            return _exact(value)


def _upper(value: Any) -> Any:
    """Return a bound at or above `value` as JSON has it; None if there is none."""
    match value:
        case str():
            return value if len(value) <= TEXT_MAX else None
        case datetime():
            return _timestamp(value) if value.microsecond % 1000 == 0 else _next_ms(value)
        case _:
            return _exact(value)


def _exact(value: Any) -> Any:
    match value:
        case date():
            return value.isoformat()
        case float() if not math.isfinite(value):
            return None
        case int() | float():
            return value
        case _:
            return None


def _timestamp(value: datetime) -> str:
    """Return a time cut to milliseconds, which every engine reads. Times in a lake are UTC."""
    return value.replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"


def _next_ms(value: datetime) -> str | None:
    try:
        return _timestamp(value + _MS)
    except OverflowError:  # the last millisecond of the year 9999
        return None
