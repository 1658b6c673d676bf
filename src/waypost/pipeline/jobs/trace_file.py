"""Parses the lines of a trace file with Spark, numbered as in the file.

Spark reads a large file in blocks, in parallel, and once: the parsed lines are cached. A line's
number is its position in its block plus the lines of all earlier blocks, so it does not depend on
the block size.

Names become subjects under `trace.`, with `_` for characters that a token cannot contain. Blank
lines, comments (`#`, `%`) and one header line before the first message are skipped. Any other line
that is not a message is bad.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import msgspec
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from waypost.pipeline.errors import BadTrace
from waypost.policy.bounds import subject_length_max_chars

PREFIX = "trace."
EXAMPLES_MAX = 3
_EXAMPLE_MAX_CHARS = 120
_END_OF_TIME_S = 253_402_300_800  # the year 10000: larger values are not Unix seconds


class TraceLines(msgspec.Struct, kw_only=True):
    """What is known about the lines of a trace.

    `header` is the first line of the file if it is no message. `ahead` is, for each block, what has
    to be added to the order of a line to get its number.
    """

    good: int
    bad: int
    first_us: int
    bytes: int
    header: Row | None
    ahead: list[tuple[Row, int]]


@contextmanager
def parsed_lines(spark: SparkSession, file: str, size: int) -> Iterator[DataFrame]:
    """Parse `file`; messages without a size have `size` bytes. Cached until the block ends.

    Raises `BadTrace` if there is no such file.
    """
    try:
        parsed = _parsed(spark.read.text(file), size).persist()
    except AnalysisException as problem:
        if problem.getCondition() != "PATH_NOT_FOUND":
            raise
        raise BadTrace(f"no such file: {file}") from None
    try:
        yield parsed
    finally:
        parsed.unpersist()


def messages_of(parsed: DataFrame) -> DataFrame:
    """Return sender, endpoint, at_us and size (bytes) of each message, and its place in the file.

    The names `source` and `target` are as in the file.
    """
    return parsed.where("good").select(
        "block", "order", "sender", "endpoint", "at_us", "size", "source", "target"
    )


def describe_blocks(parsed: DataFrame) -> DataFrame:
    """Return a row for each block of the file, with what is known about its lines.

    `first` is the first line that is not skipped. If it has no time, it is the header of the file.
    """
    content, good = ~F.col("skipped"), F.col("good")
    first = F.struct("order", "without_time", "bytes")
    return parsed.groupBy("block").agg(
        F.count(F.lit(1)).alias("lines"),
        F.min("order").alias("first_order"),
        F.min_by(first, F.when(content, F.col("order"))).alias("first"),
        F.count_if(good).alias("good"),
        F.count_if(content & ~good).alias("bad"),
        F.min(F.when(good, F.col("at_us"))).alias("first_us"),
        F.coalesce(F.sum(F.when(content, F.col("bytes"))), F.lit(0)).alias("bytes"),
    )


def trace_lines(blocks: Iterable[Row]) -> TraceLines:
    """Return what the rows of `describe_blocks` say about the whole file."""
    blocks = sorted(blocks, key=lambda row: tuple(row.block))
    header = next((block.first for block in blocks if block.first is not None), None)
    if header is not None and not header.without_time:
        header = None
    ahead, before = [], 0
    for block in blocks:
        ahead.append((block.block, before + 1 - block.first_order))
        before += block.lines
    return TraceLines(
        good=sum(block.good for block in blocks),
        bad=sum(block.bad for block in blocks) - (header is not None),
        first_us=min((block.first_us for block in blocks if block.good), default=0),
        bytes=sum(block.bytes for block in blocks) - (header.bytes if header else 0),
        header=header,
        ahead=ahead,
    )


def with_line(rows: DataFrame, trace: TraceLines) -> DataFrame:
    """Add `line`, counted from 1 over the whole file: the orders of a block are consecutive."""
    schema = "block struct<file_path: string, file_block_start: bigint>, ahead bigint"
    known = F.broadcast(rows.sparkSession.createDataFrame(trace.ahead, schema))
    numbered = rows.join(known, on="block", how="inner")
    return numbered.withColumn("line", F.col("order") + F.col("ahead"))


def bad_examples(parsed: DataFrame, trace: TraceLines) -> list[str]:
    """Return the first bad lines, with their numbers."""
    if not trace.bad:
        return []
    bad = parsed.where(~F.col("skipped") & ~F.col("good"))
    if trace.header is not None:
        bad = bad.where(F.col("order") != trace.header.order)
    first = with_line(bad, trace).orderBy("line").limit(EXAMPLES_MAX)
    return [
        f"line {row.line}: {row.value.strip()[:_EXAMPLE_MAX_CHARS]}"
        for row in first.select("line", "value").collect()
    ]


def _parsed(lines: DataFrame, size: int) -> DataFrame:
    numbered = lines.select(
        "value",
        F.struct("_metadata.file_path", "_metadata.file_block_start").alias("block"),
        F.monotonically_increasing_id().alias("order"),
    )
    return numbered.select("block", "order", *_fields(size))


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
    good = F.coalesce(complete & short, F.lit(False))
    return [
        F.when(~good, F.col("value")).alias("value"),
        (F.octet_length("value") + 1).alias("bytes"),
        ((text == "") | text.rlike("^[#%]")).alias("skipped"),
        good.alias("good"),
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


def count_names(messages: DataFrame) -> DataFrame:
    """Return one row: the number of `senders`, of `recipients`, and of names that were `merged`.

    A name is merged if it became the same subject as another.
    """
    used = messages.select(
        F.explode(F.array(_use("source", 1, 0), _use("target", 0, 1))).alias("use")
    )
    names = used.groupBy("use.name").agg(
        F.max("use.sends").alias("sends"), F.max("use.receives").alias("receives")
    )
    subjects = names.groupBy(_subject(F.col("name")).alias("subject")).agg(
        F.max("sends").alias("sends"),
        F.max("receives").alias("receives"),
        F.count(F.lit(1)).alias("names"),
    )
    return subjects.agg(
        F.sum("sends").alias("senders"),
        F.sum("receives").alias("recipients"),
        F.sum(F.col("names") - 1).alias("merged"),
    )


def _use(name: str, sends: int, receives: int) -> Column:
    return F.struct(
        F.col(name).alias("name"), F.lit(sends).alias("sends"), F.lit(receives).alias("receives")
    )
