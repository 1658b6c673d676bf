"""`ingest` turns journals into `events`: every line once, with both readers, after any crash."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.journals import START_US, events_in, some_traffic, write_journal
from waypost import Relay
from waypost.pipeline.datasource import register
from waypost.pipeline.errors import JournalUnusable
from waypost.pipeline.ingest.job import IngestSummary, ingest
from waypost.pipeline.journal.sources import JournalSource, parse_sources
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.lake.packs import Upkeep
from waypost.pipeline.tables.build import build
from waypost.server.identity.relay_key import RelayKey
from waypost.testing import ManualClock
from waypost.wire.events import encode_event

DAY_US = 24 * 3600 * 1_000_000
RunIngest = Callable[[Lake, list[JournalSource]], IngestSummary]


@pytest.fixture(params=["whole segments", "line by line"])
def run_ingest(request: pytest.FixtureRequest) -> RunIngest:
    return lambda lake, sources: ingest(lake, sources, line_by_line=request.param == "line by line")


async def sealed_traffic(relay: Relay, clock: ManualClock) -> None:
    await some_traffic(relay, clock)
    await relay.seal_journal()


def rows(lake: Lake) -> list[dict[str, object]]:
    ordered = lake.read("events", EVENTS).orderBy("relay", "seq")
    return [row.asDict(recursive=True) for row in ordered.collect()]


def lake_of(spark: SparkSession, tmp_path: Path) -> Lake:
    return open_lake(spark, str(tmp_path / "lake"), create=True)


def test_every_event_is_a_row_with_all_fields_of_its_header(
    spark: SparkSession, tmp_path: Path, run_ingest: RunIngest
) -> None:
    write_journal(tmp_path / "data", sealed_traffic)
    lake = lake_of(spark, tmp_path)
    summary = run_ingest(lake, parse_sources([str(tmp_path / "data")]))
    expected, found = events_in(tmp_path / "data"), rows(lake)
    assert summary.events == len(expected) == len(found)
    budget = {"hop_count": "hop_count", "max_hops": "max_hops", "ttl": "ttl_ms"}
    for event, row in zip(expected, found, strict=True):
        fields = {
            name: value
            for name, value in msgspec.json.decode(encode_event(event)).items()
            if name not in {"payload", "body"}
        }
        budget_fields = fields.pop("budget", {})
        for name, value in fields.items():
            stored = row[name]
            if name in {"settings", "rules"}:
                stored = msgspec.json.decode(str(stored))
            assert stored == value, (row["kind"], name)
        for name, column in budget.items():
            if name in budget_fields:
                assert row[column] == budget_fields[name]
        assert row["relay"] == "data"


def test_a_signed_journal_is_read_like_any_other(
    spark: SparkSession, tmp_path: Path, run_ingest: RunIngest
) -> None:
    async def signed_traffic(relay: Relay, clock: ManualClock) -> None:
        relay.sign_journal(RelayKey.open(tmp_path))
        await some_traffic(relay, clock)
        clock.advance_ms(60_000)
        await relay.idle()
        await relay.publish("agent.a", "x" * 5000, sender="agent.b")
        await relay.seal_journal()

    write_journal(tmp_path / "data", signed_traffic)
    lake = lake_of(spark, tmp_path)
    summary = run_ingest(lake, parse_sources([str(tmp_path / "data")]))
    written = [one.seq for one in events_in(tmp_path / "data")]  # the last one signs the rest
    assert [row["seq"] for row in rows(lake)] == written
    assert (summary.events, summary.corrupt, summary.missing) == (len(written), 0, 0)
    assert [row["kind"] for row in rows(lake)].count("checkpoint") == 2
    register(spark)
    source = spark.read.format("waypost").load(str(tmp_path / "data")).where("kind = 'checkpoint'")
    assert [row.sender for row in source.collect()] == [None, None]


def test_a_field_omitted_from_a_line_has_its_default_in_the_row(
    spark: SparkSession, tmp_path: Path, run_ingest: RunIngest
) -> None:
    write_journal(tmp_path / "data", sealed_traffic)
    lake = lake_of(spark, tmp_path)
    run_ingest(lake, parse_sources([str(tmp_path / "data")]))
    by_seq = {row["seq"]: row for row in rows(lake)}
    for event in events_in(tmp_path / "data"):
        row = by_seq[event.seq]
        for name in ("depth", "tier", "part", "parts", "via", "attempt", "was", "count"):
            if hasattr(event, name):
                assert row[name] == getattr(event, name), (row["kind"], name)
            else:
                assert row[name] is None


def test_a_second_run_finds_nothing_to_do(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path / "data", sealed_traffic)
    lake = lake_of(spark, tmp_path)
    sources = parse_sources([str(tmp_path / "data")])
    ingest(lake, sources)
    before, version = rows(lake), lake.manifest.version
    again = ingest(open_lake(spark, lake.path), sources)
    assert (again.segments, again.events) == (0, 0)
    reopened = open_lake(spark, lake.path)
    assert reopened.manifest.version == version
    assert rows(reopened) == before


def test_a_run_that_died_before_its_commit_leaves_nothing_behind(
    spark: SparkSession, tmp_path: Path, run_ingest: RunIngest
) -> None:
    write_journal(tmp_path / "data", sealed_traffic)
    sources = parse_sources([str(tmp_path / "data")])
    whole = open_lake(spark, str(tmp_path / "whole"), create=True)
    run_ingest(whole, sources)
    lake = lake_of(spark, tmp_path)
    lake.begin().append_events(whole.read("events", EVENTS).limit(7))  # without a commit
    assert rows(lake) == []
    run_ingest(open_lake(spark, lake.path, create=True), sources)
    assert rows(open_lake(spark, lake.path)) == rows(whole)


def test_an_open_segment_is_read_up_to_its_last_commit_and_completed_later(
    spark: SparkSession, tmp_path: Path, run_ingest: RunIngest
) -> None:
    data, sources = tmp_path / "data", parse_sources([str(tmp_path / "data")])
    write_journal(data, some_traffic)
    (segment,) = (data / "journal").glob("*.open")
    committed = segment.read_bytes()
    segment.write_bytes(committed + b'{"kind":"acked","seq":999999,"at_us":1,"id":"x"')
    lake = lake_of(spark, tmp_path)
    first = run_ingest(lake, sources)
    assert first.events == len(events_in(data))
    assert first.corrupt == 0
    assert run_ingest(lake, sources).events == 0
    segment.write_bytes(committed)
    write_journal(data, sealed_traffic, start_us=START_US + DAY_US)
    second = run_ingest(lake, sources)
    assert first.events + second.events == len(events_in(data))
    assert [row["seq"] for row in rows(lake)] == [event.seq for event in events_in(data)]
    assert len(lake.manifest.days("events")) == 2


def test_both_readers_give_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path / "data", sealed_traffic)
    write_journal(tmp_path / "data", sealed_traffic, start_us=START_US + DAY_US)
    sources = parse_sources([str(tmp_path / "data")])
    whole = open_lake(spark, str(tmp_path / "whole"), create=True)
    lines = open_lake(spark, str(tmp_path / "lines"), create=True)
    assert ingest(whole, sources) == ingest(lines, sources, line_by_line=True)
    assert rows(whole) == rows(lines)
    assert whole.manifest.relays == lines.manifest.relays
    assert whole.manifest.days("events") == lines.manifest.days("events")


def test_arrow_reads_segments_given_as_file_addresses(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path / "data", sealed_traffic)
    lake = open_lake(spark, f"file:{tmp_path / 'lake'}", create=True)
    assert ingest(lake, parse_sources([f"data=file:{tmp_path / 'data'}"])).events > 0
    (file,) = (tmp_path / "lake" / "events").glob("1-*/*.parquet")
    assert file.name == "data-1.parquet"


def test_corrupt_lines_are_counted_and_kept(spark: SparkSession, tmp_path: Path) -> None:
    data = tmp_path / "data"
    write_journal(data, sealed_traffic)
    (segment,) = (data / "journal").glob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    destroyed = lines[10]
    lines[10] = b"@@" + destroyed[2:]
    lines[20:20] = [b'{"valid": "json", "but": "no event"}\n']
    segment.write_bytes(b"".join(lines))
    lake = lake_of(spark, tmp_path)
    summary = ingest(lake, parse_sources([str(data)]))
    assert (summary.corrupt, summary.missing) == (2, 1)
    kept = {row.line for row in spark.read.parquet(f"{lake.path}/corrupt").collect()}
    assert kept == {lines[10].decode().rstrip("\n"), lines[20].decode().rstrip("\n")}
    assert summary.events == len(rows(lake))


def test_the_journals_of_many_relays_share_a_lake(spark: SparkSession, tmp_path: Path) -> None:
    write_journal(tmp_path / "east", sealed_traffic)
    write_journal(tmp_path / "west", sealed_traffic)
    lake = lake_of(spark, tmp_path)
    ingest(lake, parse_sources([str(tmp_path / "east"), f"other={tmp_path / 'west'}"]))
    names = {row["relay"] for row in rows(lake)}
    assert names == {"east", "other"}


def test_two_relays_with_one_name_are_rejected_before_any_read(tmp_path: Path) -> None:
    with pytest.raises(JournalUnusable, match="NAME=DIR"):
        parse_sources([str(tmp_path / "a" / "data"), str(tmp_path / "b" / "data")])


@pytest.mark.parametrize("given", [".", "./", "journal", "./journal/", "../east"])
def test_a_relay_has_the_name_of_its_directory_however_it_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    (tmp_path / "east" / "journal").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "east")
    assert [source.relay for source in parse_sources([given])] == ["east"]


def test_an_address_has_the_name_of_its_last_directory() -> None:
    [source] = parse_sources(["s3://bucket/relays/east/"])
    assert source == JournalSource("east", "s3://bucket/relays/east/journal")


def test_another_relay_under_an_existing_name_is_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_journal(tmp_path / "data", sealed_traffic)

    async def other_traffic(relay: Relay, clock: ManualClock) -> None:
        relay.register_endpoint("agent.z")
        await relay.seal_journal()

    write_journal(tmp_path / "other", other_traffic)
    lake = lake_of(spark, tmp_path)
    ingest(lake, parse_sources([str(tmp_path / "data")]))
    with pytest.raises(JournalUnusable, match="another relay"):
        ingest(lake, parse_sources([f"data={tmp_path / 'other'}"]))


def test_a_directory_without_a_journal_is_named_in_the_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "empty" / "journal").mkdir(parents=True)
    for name in ("nothing", "empty"):
        with pytest.raises(JournalUnusable, match=name):
            ingest(lake_of(spark, tmp_path), parse_sources([str(tmp_path / name)]))


def test_what_one_large_ingest_has_written_is_not_written_again(
    spark: SparkSession, tmp_path: Path
) -> None:
    write_journal(tmp_path / "data", sealed_traffic)
    # Each file is small, and there are many. Together they are not small.
    upkeep = Upkeep(pack_bytes=200_000, small_files_max=2)
    lake = open_lake(spark, str(tmp_path / "lake"), create=True, upkeep=upkeep)
    ingest(lake, parse_sources([f"r{n}={tmp_path / 'data'}" for n in range(6)]))
    written = lake.manifest.tables["events"]
    assert all(4 * one.bytes < upkeep.pack_bytes for one in written)
    assert 4 * sum(one.bytes for one in written) > upkeep.pack_bytes
    assert len(written) > upkeep.small_files_max
    build(lake)
    assert lake.manifest.tables["events"] == written


def test_both_readers_write_dictionaries_for_values_that_repeat_and_for_no_others(
    spark: SparkSession, tmp_path: Path, run_ingest: RunIngest
) -> None:
    write_journal(tmp_path / "data", sealed_traffic)
    lake = lake_of(spark, tmp_path)
    run_ingest(lake, parse_sources([str(tmp_path / "data")]))
    (file,) = (Path(lake.path) / "events").rglob("*.parquet")
    group = pq.read_metadata(file).row_group(0)
    columns = [group.column(number) for number in range(group.num_columns)]
    with_dictionary = {one.path_in_schema for one in columns if one.has_dictionary_page}
    assert {"kind", "endpoint"} <= with_dictionary
    assert not {"seq", "at_us", "id", "parent"} & with_dictionary
