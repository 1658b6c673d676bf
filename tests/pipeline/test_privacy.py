"""What the pipeline writes is private, it reads no links, and its ports ask for a secret."""

import os
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.journals import some_traffic, write_journal
from waypost.pipeline.datasource import register
from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.files import private_files
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.jobs.stream import StreamOptions, stream
from waypost.pipeline.journal.segments import list_local_segments
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.replay.backtest import backtest, save_result
from waypost.pipeline.reports.report import write_report
from waypost.pipeline.tables.build import build


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    """Run as most programs do: a careless file would be readable by everyone."""
    before = os.umask(0o022)
    yield
    os.umask(before)


def ingested(spark: SparkSession, directory: Path, *, line_by_line: bool = False) -> Lake:
    write_journal(directory / "relay", some_traffic)
    lake = open_lake(spark, str(directory / "lake"), create=True)
    ingest(lake, parse_sources([str(directory / "relay")]), line_by_line=line_by_line)
    return lake


def exposed(root: Path) -> list[str]:
    """Return the files and directories that other users can access, below and including `root`."""
    found = [root, *root.rglob("*")]
    return [
        f"{one.relative_to(root)} {stat.filemode(one.lstat().st_mode)}"
        for one in found
        if one.lstat().st_mode & 0o077
    ]


def test_lake_report_and_decisions_are_for_their_owner_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = ingested(spark, tmp_path)
    build(lake)
    write_report(lake, tmp_path / "lake" / "report.html")
    write_report(lake, tmp_path / "pages" / "report.html")
    save_result(lake, backtest(lake, out=str(tmp_path / "decisions")))
    assert (tmp_path / "lake" / "backtest.json").is_file()
    for written in ("lake", "pages", "decisions"):
        assert exposed(tmp_path / written) == []


def test_a_lake_written_by_spark_or_a_stream_is_for_its_owner_only(
    spark: SparkSession, tmp_path: Path
) -> None:
    ingested(spark, tmp_path, line_by_line=True)
    assert exposed(tmp_path / "lake") == []
    stream(
        spark,
        str(tmp_path / "streamed"),
        parse_sources([str(tmp_path / "relay")]),
        StreamOptions(until_idle=True),
    )
    assert any((tmp_path / "streamed" / "checkpoints").iterdir())
    assert exposed(tmp_path / "streamed") == []


def test_scratch_files_are_in_a_private_directory(spark: SparkSession) -> None:
    spark.range(1000).repartition(3).collect()
    scratch = Path(spark.conf.get("spark.local.dir") or "")
    assert any(scratch.rglob("*.data"))
    assert exposed(scratch) == []


@pytest.mark.parametrize("kind", ["link", "pipe"])
def test_a_segment_that_leads_elsewhere_is_not_read(
    spark: SparkSession, tmp_path: Path, kind: str
) -> None:
    secret = tmp_path / "secret.jsonl"
    secret.write_text('{"kind":"acked"}\n')
    write_journal(tmp_path / "relay", some_traffic)
    segment = tmp_path / "relay" / "journal" / f"{10**6:020d}.jsonl"
    if kind == "link":
        segment.symlink_to(secret)
    else:
        os.mkfifo(segment)
    with pytest.raises(JournalUnusable, match="not a regular file"):
        list_local_segments("relay", str(tmp_path / "relay"))
    if kind == "link":  # Spark does not list pipes
        with pytest.raises(JournalUnusable, match="not a regular file"):
            ingest(
                open_lake(spark, str(tmp_path / "lake"), create=True),
                parse_sources([str(tmp_path / "relay")]),
            )


def test_a_body_file_that_leads_elsewhere_is_not_read(spark: SparkSession, tmp_path: Path) -> None:
    async def large(relay, clock) -> None:  # type: ignore[no-untyped-def]
        relay.register_endpoint("agent.a")
        await relay.publish("agent.a", "x" * 10_000, sender="agent.b")

    write_journal(tmp_path / "relay", large)
    [bodies] = (tmp_path / "relay" / "journal").glob("*.bodies")
    bodies.rename(tmp_path / "elsewhere")
    bodies.symlink_to(tmp_path / "elsewhere")
    register(spark)
    reader = spark.read.format("waypost").option("payload", "true")
    with pytest.raises(Exception, match="not a regular file"):
        reader.load(str(tmp_path / "relay")).select("payload").collect()


def test_the_ports_of_a_session_ask_for_a_secret(spark: SparkSession) -> None:
    context = spark.sparkContext
    blocks = context._jsc.sc().getExecutorMemoryStatus().keys().head()  # "host:port"
    for port in (context.getConf().get("spark.driver.port"), blocks.partition(":")[2]):
        assert b"Expected SaslMessage" in _call_without_secret(int(port))


def _call_without_secret(port: int) -> bytes:
    """Send a remote call in Spark's protocol; returns the answer."""
    call = struct.pack(">BQI", 3, 1, 4) + b"call"
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(struct.pack(">Q", 8 + len(call)) + call)
        return connection.recv(4096)


def test_files_stay_private_while_any_thread_writes_private_ones() -> None:
    before = os.umask(0o022)
    try:
        first, second = private_files(), private_files()
        first.__enter__()
        second.__enter__()
        first.__exit__(None, None, None)
        assert os.umask(0o077) == 0o077
        second.__exit__(None, None, None)
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
