"""Two jobs that began from one version of a lake: both commit, unless they changed the same."""

from typing import Any

import msgspec
import pytest

from waypost.pipeline.lake.manifest import (
    DataFile,
    EventBatch,
    IngestedSegment,
    Manifest,
    Retired,
    rebase,
)

DAY, NEXT_DAY = "2026-01-01", "2026-01-02"


def file(number: int, day: str = DAY) -> DataFile:
    return DataFile(f"{number}-{number:08x}/part.parquet", 10, 1, day, day)


def batch(number: int, day: str = DAY) -> EventBatch:
    return EventBatch(file(number).pack, [day])


BASE = Manifest(
    version=5,
    relays={"east": {1: IngestedSegment(9, 0, 9)}},
    tables={"events": [file(1), file(2)], "traffic": [file(3)]},
    table_days={"events": [DAY], "traffic": [DAY]},
    unbuilt=[batch(2)],
    retired=[Retired("events/1-00000009", 4, 0)],
)


def changed(**fields: Any) -> Manifest:
    return msgspec.structs.replace(BASE, version=6, **fields)


INGEST = changed(
    relays={"east": {1: IngestedSegment(12, 0, 12)}},
    tables={**BASE.tables, "events": [file(1), file(2), file(6, NEXT_DAY)]},
    table_days={**BASE.table_days, "events": [DAY, NEXT_DAY]},
    unbuilt=[batch(2), batch(6, NEXT_DAY)],
)
BUILD = changed(
    tables={"events": [file(7)], "traffic": [file(8)]},
    unbuilt=[],
    retired=[],
)
OTHER_RELAY = changed(
    relays={**BASE.relays, "west": {1: IngestedSegment(3, 0, 3)}},
    tables={**BASE.tables, "events": [*BASE.tables["events"], file(9)]},
    unbuilt=[batch(2), batch(9)],
)


@pytest.mark.parametrize(("first", "second"), [(INGEST, BUILD), (BUILD, INGEST)])
def test_a_build_and_an_ingest_keep_the_changes_of_both(first: Manifest, second: Manifest) -> None:
    both = rebase(second, BASE, first, "events")
    assert both is not None
    assert both.version == 7
    assert both.relays == INGEST.relays
    assert set(both.tables["events"]) == {file(7), file(6, NEXT_DAY)}
    assert both.tables["traffic"] == [file(8)]
    assert both.days("events") == [DAY, NEXT_DAY]
    assert both.unbuilt == [batch(6, NEXT_DAY)]
    assert both.retired == []


def test_two_relays_are_ingested_at_the_same_time() -> None:
    both = rebase(OTHER_RELAY, BASE, INGEST, "events")
    assert both is not None
    assert both.relays == {**INGEST.relays, **OTHER_RELAY.relays, "east": INGEST.relays["east"]}
    assert set(both.tables["events"]) == {*INGEST.tables["events"], file(9)}
    assert both.unbuilt == [batch(2), batch(6, NEXT_DAY), batch(9)]


@pytest.mark.parametrize("twice", [INGEST, BUILD], ids=["ingest", "build"])
def test_the_same_change_made_twice_is_a_conflict(twice: Manifest) -> None:
    assert rebase(twice, BASE, twice, "events") is None


def test_files_that_both_replaced_are_a_conflict() -> None:
    merges = [changed(tables={**BASE.tables, "events": [file(number)]}) for number in (10, 11)]
    assert rebase(merges[0], BASE, merges[1], "events") is None
