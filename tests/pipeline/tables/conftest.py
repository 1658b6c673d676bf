"""Lakes that are built once for all tests of tables, because building takes seconds."""

import shutil
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import SparkSession

from tests.pipeline.tables import journal_by_hand
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.lake.manifest import Manifest, decode_manifest, encode_manifest
from waypost.pipeline.lake.packs import Upkeep
from waypost.pipeline.tables.build import BuildSummary, build
from waypost.simulate import SimulationOptions, simulate

CROWDED = Upkeep(
    pack_bytes=20_000,
    small_files_max=4,
    keep_versions=1,
    keep_s=0,
    leftover_s=0,
    sweep_every=1,
)


class Step(msgspec.Struct):
    """The summary of a build, and the manifest after it."""

    built: BuildSummary
    manifest: Manifest


class BuiltLake(msgspec.Struct):
    """A lake with its tables, its journal, and the builds that made it."""

    lake: Lake
    relay: str
    journal: Path
    steps: list[Step]


def ingest_and_build(lake: Lake, relay: str, data: Path) -> Step:
    ingest(lake, parse_sources([f"{relay}={data}"]))
    built = build(lake)
    return Step(built, decode_manifest(encode_manifest(lake.manifest)))


@pytest.fixture(scope="session")
def by_hand(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BuiltLake:
    """Return a lake with every rare case; the fourth day is ingested after the first build."""
    data = tmp_path_factory.mktemp("by-hand")
    lake = open_lake(spark, str(data / "lake"), create=True)
    journal_by_hand.write_first_part(data)
    first = ingest_and_build(lake, "hand", data)
    journal_by_hand.write_second_part(data)
    second = ingest_and_build(lake, "hand", data)
    return BuiltLake(lake, "hand", data / "journal", [first, second])


@pytest.fixture(scope="session")
def simulated(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> BuiltLake:
    """Return a lake with two days of many agents, ingested and built at once."""
    root = tmp_path_factory.mktemp("simulated")
    simulate(SimulationOptions(messages=3000, agents=40, seed=7, out=root / "data"))
    lake = open_lake(spark, str(root / "lake"), create=True)
    step = ingest_and_build(lake, "sim", root / "data")
    return BuiltLake(lake, "sim", root / "data" / "journal", [step])


@pytest.fixture(scope="session")
def in_steps(simulated: BuiltLake, tmp_path_factory: pytest.TempPathFactory) -> BuiltLake:
    """Return a lake with the same traffic in three parts, the second of which comes last.

    Its files are cut, merged and removed as those of a lake with a thousand times the traffic.
    """
    root = tmp_path_factory.mktemp("in-steps")
    pieces = split_journal(simulated.journal, root / "pieces", pieces=9)
    lake = open_lake(simulated.lake.spark, str(root / "lake"), create=True, upkeep=CROWDED)
    journal = root / "data" / "journal"
    journal.mkdir(parents=True)
    steps = []
    for third in (pieces[:3], pieces[6:], pieces[3:6]):
        for piece in third:
            shutil.move(piece, journal / piece.name)
        steps.append(ingest_and_build(lake, "sim", root / "data"))
    return BuiltLake(lake, "sim", journal, steps)


def split_journal(journal: Path, into: Path, pieces: int) -> list[Path]:
    """Split the journal's batches into segments of about the same size, in order."""
    into.mkdir()
    text = b"".join(path.read_bytes() for path in sorted(journal.glob("*.jsonl")))
    lines = text.splitlines(keepends=True)
    made: list[Path] = []
    while lines:
        target = len(lines) // (pieces - len(made))
        ends = [at for at, line in enumerate(lines, 1) if b'"kind":"commit"' in line[:20]]
        last_piece = len(made) == pieces - 1
        end = len(lines) if last_piece else next(at for at in ends if at >= min(target, ends[-1]))
        seq = msgspec.json.decode(lines[0])["seq"]
        made.append(into / f"{seq:020}.jsonl")
        made[-1].write_bytes(b"".join(lines[:end]))
        lines = lines[end:]
    return made
