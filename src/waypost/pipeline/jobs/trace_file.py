"""Parses the lines of a trace file with Spark, numbered as in the file.

Spark reads a large file in blocks, in parallel. A line's number is its position in its block plus
the lines of all earlier blocks, so it does not depend on the block size.

Names become subjects under `trace.`, with `_` for characters that a token cannot contain. Blank
lines, comments (`#`, `%`) and one header line before the first message are skipped. Any other line
that is not a message is bad.
"""

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from waypost.policy.bounds import subject_length_max_chars

PREFIX = "trace."
EXAMPLES_MAX = 3
_EXAMPLE_MAX_CHARS = 120
_END_OF_TIME_S = 253_402_300_800  # the year 10000: larger values are not Unix seconds


class TraceLines(msgspec.Struct, kw_only=True):
    """A parsed trace: `messages` has line, sender, endpoint, at_us and size (bytes) of each."""

    messages: DataFrame
    good: int
    bad: int
    bad_examples: list[str]
    first_us: int
    senders: int
    merged: int
    bytes: int


def read_trace(spark: SparkSession, file: str, size: int) -> TraceLines:
    """Parse `file`; messages without a size have `size` bytes."""
    lines = spark.read.text(file).select(
        "value",
        F.struct("_metadata.file_path", "_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("order"),
    )
    parsed = _numbered(lines.select("*", *_fields(size)))
    content = parsed.where(~F.col("skipped"))
    header = _header_line(content)
    body = content.where(F.col("line") != header) if header else content
    messages = body.where(F.col("good"))
    seen = body.agg(
        F.count_if("good").alias("good"),
        F.count_if(~F.col("good")).alias("bad"),
        F.min(F.when(F.col("good"), F.col("at_us"))).alias("first_us"),
        F.coalesce(F.sum(F.octet_length("value") + 1), F.lit(0)).alias("bytes"),
    ).head()
    assert seen is not None
    senders, merged = _count_names(messages)
    return TraceLines(
        messages=messages.select("line", "sender", "endpoint", "at_us", "size"),
        good=seen.good,
        bad=seen.bad,
        bad_examples=_examples(body) if seen.bad else [],
        first_us=seen.first_us or 0,
        senders=senders,
        merged=merged,
        bytes=seen.bytes,
    )


def _fields(size: int) -> list[Column]:
    """Return the fields of a line, null where they cannot be parsed."""
    text = F.trim(F.regexp_replace("value", r"[\s,]+", " "))
    parts = F.split(text, " ")
    source, target = F.get(parts, F.lit(0)), F.get(parts, F.lit(1))
    seconds = F.get(parts, F.lit(2)).try_cast("decimal(20,6)")
    given_size = F.get(parts, F.lit(3)).try_cast("bigint")
    has_size = F.size(parts) == 4
    in_time = (seconds >= 0) & (seconds < _END_OF_TIME_S)
    complete = F.size(parts).isin(3, 4) & in_time & (~has_size | (given_size >= 0))
    sender, endpoint = _subject(source), _subject(target)
    short = F.greatest(F.length(sender), F.length(endpoint)) <= subject_length_max_chars
    return [
        ((text == "") | text.rlike("^[#%]")).alias("skipped"),
        F.coalesce(complete & short, F.lit(False)).alias("good"),
        source.alias("source"),
        target.alias("target"),
        sender.alias("sender"),
        endpoint.alias("endpoint"),
        F.when(in_time, (seconds * 1_000_000).cast("bigint")).alias("at_us"),
        F.when(has_size, given_size).otherwise(F.lit(size)).cast("bigint").alias("size"),
        seconds.isNull().alias("without_time"),
    ]


def _subject(name: Column) -> Column:
    return F.concat(F.lit(PREFIX), F.regexp_replace(name, "[^A-Za-z0-9_-]", "_"))


def _numbered(lines: DataFrame) -> DataFrame:
    """Add `line`, counted from 1 over the whole file."""
    blocks = sorted(lines.groupBy("block").count().collect(), key=lambda row: tuple(row.block))
    starts, before = [], 0
    for row in blocks:
        starts.append((row.block, before))
        before += row["count"]
    schema = "block struct<file_path: string, file_block_start: bigint>, before bigint"
    known = lines.join(
        F.broadcast(lines.sparkSession.createDataFrame(starts, schema)), on="block", how="inner"
    )
    in_block = Window.partitionBy("block").orderBy("order")
    return known.withColumn("line", F.col("before") + F.row_number().over(in_block))


def _header_line(content: DataFrame) -> int | None:
    """Return the number of the first line if it is a header: its third field is not a time."""
    first = content.agg(F.min_by(F.struct("line", "without_time"), "line").alias("first")).head()
    if first is None or first.first is None or not first.first.without_time:
        return None
    line: int = first.first.line
    return line


def _count_names(messages: DataFrame) -> tuple[int, int]:
    """Return the number of senders, and of names lost because two became one subject."""
    used = messages.select(
        F.explode(
            F.array(
                F.struct(F.col("source").alias("name"), F.lit(1).alias("sends")),
                F.struct(F.col("target").alias("name"), F.lit(0).alias("sends")),
            )
        ).alias("one")
    )
    names = used.groupBy("one.name").agg(F.max("one.sends").alias("sends"))
    subjects = names.groupBy(_subject(F.col("name")).alias("subject")).agg(
        F.max("sends").alias("sends"), F.count(F.lit(1)).alias("names")
    )
    row = subjects.agg(
        F.coalesce(F.sum("sends"), F.lit(0)).alias("senders"),
        F.coalesce(F.sum(F.col("names") - 1), F.lit(0)).alias("merged"),
    ).head()
    assert row is not None
    return row.senders, row.merged


def _examples(lines: DataFrame) -> list[str]:
    bad = lines.where(~F.col("good")).orderBy("line").limit(EXAMPLES_MAX)
    return [
        f"line {row.line}: {row.value.strip()[:_EXAMPLE_MAX_CHARS]}"
        for row in bad.select("line", "value").collect()
    ]
