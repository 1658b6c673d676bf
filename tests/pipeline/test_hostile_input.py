"""Journals and manifests as an attacker or an accident leaves them: counted, or one sentence."""

import json
import zlib
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.journals import START_US, events_in, some_traffic, write_journal
from waypost.pipeline.errors import JournalUnusable, LakeUnusable
from waypost.pipeline.ingest.job import IngestSummary, ingest
from waypost.pipeline.jobs.stream import StreamOptions, stream
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.lake.manifest import DataFile, Manifest, encode_manifest

YEAR_10000_US = 253_402_300_800_000_000


@pytest.fixture
def relay(tmp_path: Path) -> Path:
    """Return the data directory of a relay with one segment."""
    write_journal(tmp_path / "relay", some_traffic)
    return tmp_path / "relay"


def append_batch(relay: Path, before: bytes = b"", **event: object) -> None:
    """Append `before` and a valid batch with one event to the journal, and seal its segment."""
    seq = max(one.seq for one in events_in(relay)) + 1
    line = json.dumps({"kind": "acked", "seq": seq, **event}).encode() + b"\n"
    commit = {
        "kind": "commit",
        "seq": seq,
        "at_us": START_US,
        "count": 1,
        "bytes": len(line),
        "crc": zlib.crc32(line),
    }
    [segment] = (relay / "journal").glob("*.open")
    with segment.open("ab") as file:
        file.write(before + line)
        file.write(json.dumps(commit, separators=(",", ":")).encode() + b"\n")
    segment.rename(segment.with_suffix(".jsonl"))


def ingested(spark: SparkSession, relay: Path) -> IngestSummary:
    lake = open_lake(spark, str(relay.parent / "lake"), create=True)
    return ingest(lake, parse_sources([str(relay)]))


@pytest.mark.parametrize("at_us", [YEAR_10000_US, (1 << 63) - 1, -1])
def test_an_event_at_an_impossible_time_is_counted_as_corrupt(
    spark: SparkSession, relay: Path, at_us: int
) -> None:
    count = len(events_in(relay))
    append_batch(relay, at_us=at_us, id="x", endpoint="agent.a")
    found = ingested(spark, relay)
    assert (found.events, found.corrupt, found.missing) == (count, 1, 1)


def test_a_stream_skips_an_event_at_an_impossible_time(spark: SparkSession, relay: Path) -> None:
    count = len(events_in(relay))
    append_batch(relay, at_us=YEAR_10000_US, id="x", endpoint="agent.a")
    lake, sources = str(relay.parent / "lake"), parse_sources([str(relay)])
    assert stream(spark, lake, sources, StreamOptions(until_idle=True)).events == count


def test_a_line_that_no_relay_writes_is_counted_not_held(spark: SparkSession, relay: Path) -> None:
    count = len(events_in(relay)) + 1
    append_batch(relay, b"x" * (80 << 20) + b"\n", at_us=START_US, id="x", endpoint="agent.a")
    found = ingested(spark, relay)
    assert found.events == count
    assert found.corrupt >= 1


@pytest.mark.parametrize(
    "name", ["²³.jsonl", "-1.jsonl", " 1.open", f"{'9' * 20}.jsonl", f"{'9' * 200}.jsonl"]
)
def test_a_file_with_an_odd_name_is_named_in_the_error(
    spark: SparkSession, relay: Path, name: str
) -> None:
    (relay / "journal" / name).write_bytes(b"x\n")
    with pytest.raises(JournalUnusable, match="is not"):
        ingested(spark, relay)


@pytest.mark.parametrize(
    "address",
    [
        "nosuch://x/y",
        "ftp://127.0.0.1:9/x",
        "http://127.0.0.1:9/x",
        "relay=:",
        "relay=x:y:z",
        "relay=",
        "relay=/tmp/*",
        "relay=/tmp/{a",
        "relay=a\0b",
    ],
)
def test_an_odd_address_of_a_journal_is_one_sentence(
    spark: SparkSession, tmp_path: Path, address: str
) -> None:
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    with pytest.raises(JournalUnusable) as problem:
        ingest(lake, parse_sources([address]))
    assert "\n" not in str(problem.value)
    assert len(str(problem.value)) < 500


def file(path: bytes, first_day: bytes = b"2026-01-01") -> bytes:
    return (
        b'{"path": "%s", "bytes": 1, "rows": 1, "first_day": "%s", "last_day": "2026-01-01"}'
    ) % (path, first_day)


@pytest.mark.parametrize(
    "manifest",
    [
        b"{",
        b"[" * 100_000,
        b'{"format": 2, "version": -1}',
        b'{"format": 2, "version": 99999999999999999999999}',
        b'{"format": 2, "tables": {"../../etc": []}}',
        b'{"format": 2, "tables": {"events": [%s]}}' % file(b"../../../secret.parquet"),
        b'{"format": 2, "tables": {"events": [%s]}}' % file(b"1-0123456789abcdef/../x.parquet"),
        b'{"format": 2, "tables": {"events": [%s]}}' % file(b"1-0123456789abcdef/x", b"..."),
        b'{"format": 2, "retired": [{"directory": "events/..", "version": 1, "at_ms": 1}]}',
        b'{"format": 2, "retired": [{"directory": "", "version": 1, "at_ms": 1}]}',
        b'{"format": 2, "unbuilt": [{"pack": "../..", "days": []}]}',
        b'{"format": 2, "relays": {"r": {"-1": [1, 1, 1]}}}',
    ],
)
def test_an_odd_manifest_is_one_sentence(
    spark: SparkSession, tmp_path: Path, manifest: bytes
) -> None:
    directory = tmp_path / "lake" / "manifest" / "slot=0"
    directory.mkdir(parents=True)
    (directory / "part-0").write_bytes(manifest)
    with pytest.raises(LakeUnusable, match="invalid manifest") as problem:
        open_lake(spark, str(tmp_path / "lake"))
    assert "\n" not in str(problem.value)


def test_a_manifest_that_this_version_writes_is_valid(spark: SparkSession, tmp_path: Path) -> None:
    tables = {
        "events": [
            DataFile("1-0123456789abcdef/east-1.parquet", 9, 1, "2026-01-01", "2026-01-02"),
            DataFile("1-0123456789abcdef/pack=3/part-0.parquet", 9, 1, "2026-01-01", "2026-01-02"),
        ]
    }
    directory = tmp_path / "lake" / "manifest" / "slot=1"
    directory.mkdir(parents=True)
    (directory / "part-0").write_bytes(encode_manifest(Manifest(version=1, tables=tables)))
    assert open_lake(spark, str(tmp_path / "lake")).manifest.tables == tables
