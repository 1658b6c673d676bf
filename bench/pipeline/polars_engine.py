"""Ingest and build in Polars: lazy frames, streamed from files to Parquet by day."""

from collections.abc import Iterator
from pathlib import Path

import polars as pl

from bench.pipeline import polars_messages, polars_tables
from bench.pipeline.columns import BUDGET, DEFAULTS, LINE, TRANSITIONS

TABLES = (
    "messages",
    "rejections",
    "traffic",
    "pairs",
    "pressure",
    "senders",
    "inboxes",
    "latency",
    "dead_letters",
    "threads",
)
_TYPES: dict[str, pl.DataType] = {
    "string": pl.String(),
    "strings": pl.List(pl.String),
    "bigint": pl.Int64(),
    "int": pl.Int32(),
    "boolean": pl.Boolean(),
}


def ingest(data: str, out: str, relays: list[str]) -> dict[str, int]:
    """Write the events of a journal once for each of `relays`; return their number."""
    paths = sorted(Path(data).glob("journal/*.jsonl"))
    schema = {name: _TYPES[kind] for name, kind in LINE.items()}
    schema["ids"] = _TYPES["strings"]
    schema["budget"] = pl.Struct({name: _TYPES[kind] for name, kind in BUDGET.items()})
    lines = pl.scan_ndjson(paths, schema=schema, include_file_paths="path")
    lines = lines.with_columns(ids=pl.coalesce("ids", pl.concat_list("id"))).with_columns(
        left=pl.int_ranges(pl.col("ids").list.len(), 0, -1, dtype=pl.Int64) - 1
    )
    lines = lines.explode("ids", "left").with_columns(
        id=pl.col("ids"), seq=pl.col("seq") - pl.col("left")
    )
    events = lines.filter(pl.col("kind") != "commit").select(
        pl.col("path").str.extract(r"(\d+)\.jsonl$").cast(pl.Int64).alias("segment"),
        *_columns(),
        pl.from_epoch("at_us", time_unit="us").dt.date().alias("day"),
    )
    copies = pl.concat([events.with_columns(pl.lit(relay).alias("relay")) for relay in relays])
    pl.collect_all([_sink(copies, f"{out}/events")], engine="streaming")
    return {"events": _count(f"{out}/events")}


def build(lake: str, out: str) -> dict[str, int]:
    """Write the tables of a lake; return the numbers of their rows."""
    files = f"{lake}/events/*/*.parquet"  # all of them: the lake has no tables yet
    events = pl.scan_parquet(files)
    arrivals = events.filter(pl.col("kind").is_in(["accepted", "rejected"])).with_columns(
        polars_tables.weight(), polars_tables.minute()
    )
    transitions = events.filter(pl.col("kind").is_in(TRANSITIONS))
    first = {
        "messages": polars_messages.messages(arrivals, transitions),
        "rejections": polars_tables.rejections(arrivals),
        "traffic": polars_tables.traffic(arrivals, transitions),
        "pairs": polars_tables.pairs(arrivals),
        "pressure": polars_tables.pressure(arrivals),
        "threads": polars_tables.threads(arrivals),
    }
    _write(first, out)
    messages, pairs, pressure = (
        _scan(f"{out}/{name}") for name in ("messages", "pairs", "pressure")
    )
    second = {
        "senders": polars_tables.senders(arrivals, pairs),
        "inboxes": polars_tables.inboxes(pairs, pressure, transitions, messages),
        "latency": polars_tables.latency(messages),
        "dead_letters": polars_tables.dead_letters(messages),
    }
    _write(second, out)
    return {table: _count(f"{out}/{table}") for table in TABLES}


def _write(tables: dict[str, pl.LazyFrame], out: str) -> None:
    sinks = [_sink(frame, f"{out}/{name}") for name, frame in tables.items()]
    pl.collect_all(sinks, engine="streaming")


def _sink(frame: pl.LazyFrame, directory: str) -> pl.LazyFrame:
    by_day = pl.PartitionBy(directory, key="day", include_key=False)
    return frame.sink_parquet(by_day, compression="zstd", mkdir=True, lazy=True)


def _scan(directory: str) -> pl.LazyFrame:
    return pl.scan_parquet(f"{directory}/**/*.parquet", hive_partitioning=True)


def _count(directory: str) -> int:
    return int(_scan(directory).select(pl.len()).collect().item())


def _columns() -> Iterator[pl.Expr]:
    """Return the columns of an event, with defaults for omitted fields."""
    for name in LINE:
        defaults = [
            pl.when(pl.col("kind").is_in(one.kinds)).then(pl.lit(one.value))
            for one in DEFAULTS.get(name, ())
        ]
        yield pl.coalesce(pl.col(name), *defaults).alias(name) if defaults else pl.col(name)
    for name in BUDGET:
        field = pl.col("budget").struct.field(name)
        yield field.alias("ttl_ms") if name == "ttl" else field
