"""The lines of a trace file, read by Spark and numbered as they stand in the file.

Spark reads a large file in blocks, side by side. A line's number is its place in its block plus
the lines of the blocks before, so it does not depend on how the file was cut.

Names become subjects under `trace.`: whatever a token may not hold is replaced by `_`. Blank
lines and comments (`#`, `%`) are passed over, and so is one line of headings before the first
message. A line that is nothing of all that is bad.
"""

import msgspec
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from waypost.policy.bounds import subject_length_max_chars

PREFIX = "trace."
EXAMPLES_MAX = 3
_EXAMPLE_MAX_CHARS = 120
_END_OF_TIME_S = 253_402_300_800  # the year 10000: what lies beyond is no Unix time in seconds


class TraceLines(msgspec.Struct, kw_only=True):
    """A trace: `messages` has line, sender, endpoint, at_us and size (bytes) of each."""

    messages: DataFrame
    good: int
    bad: int
    bad_examples: list[str]
    first_us: int
    senders: int
    merged: int
    bytes: int


def read_trace(spark: SparkSession, file: str, size: int) -> TraceLines:
    """Read `file`; messages without a size have `size` bytes."""
    placed = spark.read.text(file).select(
        "value",
        F.struct("_metadata.file_path", "_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("place"),
    )
    parsed = _numbered(placed.select("*", *_fields(size)))
    content = parsed.where(~F.col("passed_over"))
    headings = _headings(content)
    facts = content.where(F.col("line") != headings) if headings else content
    messages = facts.where(F.col("good"))
    seen = facts.agg(
        F.count_if("good").alias("good"),
        F.count_if(~F.col("good")).alias("bad"),
        F.min(F.when(F.col("good"), F.col("at_us"))).alias("first_us"),
        F.coalesce(F.sum(F.octet_length("value") + 1), F.lit(0)).alias("bytes"),
    ).head()
    assert seen is not None
    senders, merged = _names(messages)
    return TraceLines(
        messages=messages.select("line", "sender", "endpoint", "at_us", "size"),
        good=seen.good,
        bad=seen.bad,
        bad_examples=_examples(facts) if seen.bad else [],
        first_us=seen.first_us or 0,
        senders=senders,
        merged=merged,
        bytes=seen.bytes,
    )


def _fields(size: int) -> list[Column]:
    """What a line says, null where it cannot be read."""
    text = F.trim(F.regexp_replace("value", r"[\s,]+", " "))
    parts = F.split(text, " ")
    source, target = F.get(parts, F.lit(0)), F.get(parts, F.lit(1))
    seconds = F.get(parts, F.lit(2)).try_cast("decimal(20,6)")
    bytes_told = F.get(parts, F.lit(3)).try_cast("bigint")
    sized = F.size(parts) == 4
    in_time = (seconds >= 0) & (seconds < _END_OF_TIME_S)
    whole = F.size(parts).isin(3, 4) & in_time & (~sized | (bytes_told >= 0))
    sender, endpoint = _subject(source), _subject(target)
    short = F.greatest(F.length(sender), F.length(endpoint)) <= subject_length_max_chars
    return [
        ((text == "") | text.rlike("^[#%]")).alias("passed_over"),
        F.coalesce(whole & short, F.lit(False)).alias("good"),
        source.alias("source"),
        target.alias("target"),
        sender.alias("sender"),
        endpoint.alias("endpoint"),
        F.when(in_time, (seconds * 1_000_000).cast("bigint")).alias("at_us"),
        F.when(sized, bytes_told).otherwise(F.lit(size)).cast("bigint").alias("size"),
        seconds.isNull().alias("timeless"),
    ]


def _subject(name: Column) -> Column:
    return F.concat(F.lit(PREFIX), F.regexp_replace(name, "[^A-Za-z0-9_-]", "_"))


def _numbered(placed: DataFrame) -> DataFrame:
    """Adds `line`, counted from 1 over the whole file."""
    blocks = sorted(placed.groupBy("block").count().collect(), key=lambda row: tuple(row.block))
    starts, before = [], 0
    for row in blocks:
        starts.append((row.block, before))
        before += row["count"]
    schema = "block struct<file_path: string, file_block_start: bigint>, before bigint"
    known = placed.join(
        F.broadcast(placed.sparkSession.createDataFrame(starts, schema)), on="block", how="inner"
    )
    in_block = Window.partitionBy("block").orderBy("place")
    return known.withColumn("line", F.col("before") + F.row_number().over(in_block))


def _headings(content: DataFrame) -> int | None:
    """The number of the first line if it names the columns: no time where a time should be."""
    first = content.agg(F.min_by(F.struct("line", "timeless"), "line").alias("first")).head()
    if first is None or first.first is None or not first.first.timeless:
        return None
    line: int = first.first.line
    return line


def _names(messages: DataFrame) -> tuple[int, int]:
    """How many senders there are, and how many names were lost because two became one."""
    told = messages.select(
        F.explode(
            F.array(
                F.struct(F.col("source").alias("name"), F.lit(1).alias("sends")),
                F.struct(F.col("target").alias("name"), F.lit(0).alias("sends")),
            )
        ).alias("one")
    )
    names = told.groupBy("one.name").agg(F.max("one.sends").alias("sends"))
    subjects = names.groupBy(_subject(F.col("name")).alias("subject")).agg(
        F.max("sends").alias("sends"), F.count(F.lit(1)).alias("names")
    )
    row = subjects.agg(
        F.coalesce(F.sum("sends"), F.lit(0)).alias("senders"),
        F.coalesce(F.sum(F.col("names") - 1), F.lit(0)).alias("merged"),
    ).head()
    assert row is not None
    return row.senders, row.merged


def _examples(facts: DataFrame) -> list[str]:
    bad = facts.where(~F.col("good")).orderBy("line").limit(EXAMPLES_MAX)
    return [
        f"line {row.line}: {row.value.strip()[:_EXAMPLE_MAX_CHARS]}"
        for row in bad.select("line", "value").collect()
    ]
