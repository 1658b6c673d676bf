"""Parses journal lines into Arrow columns: those of `events`, and optionally the payloads.

Arrow's own parser reads the lines. It cannot keep a nested value as text, so values that must stay
text (settings, rules, payloads) are quoted first.
"""

import io
import zlib
from collections.abc import Callable

import msgspec
import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.compute as pc  # type: ignore[import-untyped]
import pyarrow.json as pj  # type: ignore[import-untyped]
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StringType, StructType

from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.lake.events import AT_US_END, CORRUPT, DEFAULTS, EVENTS, LINE

PAYLOAD = "payload"
ReadBody = Callable[[int, int], bytes]
"""Returns the bytes at an offset, of a length, of the file of large payloads."""

_AS_TEXT = (b'{"kind":"settings"', b'{"kind":"rules"')
_RAW = msgspec.json.Decoder(dict[str, msgspec.Raw])
_BODY = msgspec.json.Decoder(tuple[int, int, int])


def schema_of(*, payload: bool) -> StructType:
    """Return the columns of the data source."""
    columns = StructType(list(EVENTS))
    return columns.add(PAYLOAD, StringType()) if payload else columns


def record_batch(
    lines: bytes, relay: str, segment: int, read_body: ReadBody | None
) -> pa.RecordBatch:
    """Parse complete lines; with `read_body`, include payloads.

    The time of an event that cannot have happened then is null.
    """
    if read_body is not None:
        lines = b"".join(_with_payload(line, read_body) for line in lines.splitlines(True))
    if any(mark in lines for mark in _AS_TEXT):
        lines = b"".join(_quoted(line) for line in lines.splitlines(True))
    columns = _split(_parse(lines, payload=read_body is not None))
    _fill_in_defaults(columns)
    count = len(columns["kind"])
    columns["relay"] = pa.repeat(pa.scalar(relay), count)
    columns["segment"] = pa.repeat(pa.scalar(segment, pa.int64()), count)
    at_us = columns["at_us"]
    possible = pc.and_(pc.greater_equal(at_us, 0), pc.less(at_us, AT_US_END))
    columns["at_us"] = at_us if pc.all(possible).as_py() else pc.if_else(possible, at_us, None)
    instants = columns["at_us"].cast(pa.timestamp("us"))
    columns["day"] = instants.cast(pa.date32())
    schema = to_arrow_schema(schema_of(payload=read_body is not None))
    arrays = [columns[field.name].cast(field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _split(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return a row for each event: a line with `ids` stands for several, and has the last `seq`."""
    ids = columns.pop("ids")
    if ids.null_count == len(ids):
        return columns
    own = pa.ListArray.from_arrays(pa.array(range(len(ids) + 1), pa.int32()), columns["id"])
    each = pc.if_else(pc.is_valid(ids), ids, own)
    line, ends = pc.list_parent_indices(each), pc.cumulative_sum(pc.list_value_length(each))
    found = {name: column.take(line) for name, column in columns.items()}
    found["id"] = pc.list_flatten(each)
    number = pc.cumulative_sum(pa.repeat(1, len(line)))
    found["seq"] = pc.subtract(found["seq"], pc.subtract(ends.take(line), number))
    return found


def _fill_in_defaults(columns: dict[str, pa.Array]) -> None:
    """Add the default values that lines omit."""
    encoded = columns["kind"].dictionary_encode()
    for name, kinds, default in DEFAULTS:
        of_kinds = pc.is_in(encoded.dictionary, value_set=pa.array(kinds)).take(encoded.indices)
        omitted = pc.and_(of_kinds, pc.is_null(columns[name]))
        if pc.any(omitted).as_py():
            value = pa.scalar(default, columns[name].type)
            columns[name] = pc.if_else(omitted, value, columns[name])


def _parse(lines: bytes, *, payload: bool) -> dict[str, pa.Array]:
    """Return the columns of the lines, null where a line lacks the field; budgets are flattened."""
    known = [field for field in LINE if field.name != CORRUPT]
    schema = to_arrow_schema(StructType(known))
    if payload:
        schema = schema.append(pa.field(PAYLOAD, pa.string()))
    table = pj.read_json(
        io.BytesIO(lines),
        read_options=pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    ).combine_chunks()
    columns = {name: _one_chunk(table[name]) for name in table.column_names}
    budget = columns.pop("budget")
    for field in budget.type:
        values = pc.struct_field(budget, field.name)
        columns["ttl_ms" if field.name == "ttl" else field.name] = values
    return columns


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else pa.concat_arrays(column.chunks)


def _quoted(line: bytes) -> bytes:
    """Return the line with settings or rules as text."""
    if not line.startswith(_AS_TEXT):
        return line
    return _requoted(_RAW.decode(line), ("settings", "rules"))


def _with_payload(line: bytes, read_body: ReadBody) -> bytes:
    """Return the line of an arrival with its payload as text, read from the body file if large."""
    if b'"payload":' not in line and b'"body":[' not in line:
        return line
    fields = _RAW.decode(line)
    if "body" in fields:
        offset, length, crc = _BODY.decode(fields["body"])
        content = read_body(offset, length)
        if len(content) != length or zlib.crc32(content) != crc:
            raise JournalUnusable(f"the payload at byte {offset} of the body file is damaged")
        fields[PAYLOAD] = msgspec.Raw(content)
    return _requoted(fields, (PAYLOAD,))


def _requoted(fields: dict[str, msgspec.Raw], names: tuple[str, ...]) -> bytes:
    for name in names:
        if name in fields:
            fields[name] = msgspec.Raw(msgspec.json.encode(bytes(fields[name]).decode()))
    return msgspec.json.encode(fields) + b"\n"
