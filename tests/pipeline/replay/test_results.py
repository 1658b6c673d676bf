"""Where a backtest writes: over an earlier result and nothing else, or not at all."""

import errno
from pathlib import Path

import pytest

from tests.pipeline.replay.conftest import Recording
from waypost.pipeline.errors import PipelineError
from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.replay import backtest as replay
from waypost.pipeline.replay.backtest import (
    Backtest,
    ReplayScope,
    backtest,
    require_replaceable,
    save_result,
)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """Return what looks like a lake; beside it are an earlier result and other files."""
    for name in (
        "lake/manifest/slot=0/part-00000000000000000001.json",
        "earlier/part-00000-a.zstd.parquet",
        "earlier/.part-00000-a.zstd.parquet.crc",
        "earlier/_SUCCESS",
        "killed/_temporary/0/part-00000-a.zstd.parquet",
        "mixed/part-00000-a.zstd.parquet",
        "mixed/notes.txt",
        "nested/part-0/mail",
        "file.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "lake")
    return tmp_path / "lake"


@pytest.mark.parametrize(
    ("out", "problem"),
    [
        ("lake", "it is the lake"),
        ("lake/", "it is the lake"),
        ("mixed/../lake", "it is the lake"),
        ("link", "it is the lake"),
        (".", "the lake .* is in it"),
        ("lake/decisions", "it is in the lake"),
        ("link/decisions", "it is in the lake"),
        ("mixed", "it holds notes.txt"),
        ("nested", "it holds part-0"),
        ("file.txt", "it is a file"),
    ],
)
def test_decisions_replace_neither_a_lake_nor_other_files(
    lake: Path, out: str, problem: str
) -> None:
    for prefix in ("", "file:", "file://"):
        with pytest.raises(PipelineError, match=f"{problem}.*give a new directory"):
            require_replaceable(f"{prefix}{lake.parent}/{out}", str(lake))


def test_a_relative_directory_is_compared_with_the_lake_as_well(
    lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(lake.parent)
    for out, of_lake in ((".", "lake"), ("./lake", f"file:{lake}"), ("lake/new", "./lake/")):
        with pytest.raises(PipelineError, match="give a new directory"):
            require_replaceable(out, of_lake)


@pytest.mark.parametrize("out", ["earlier", "killed", "empty", "new", "lakes", "new/decisions"])
def test_decisions_replace_an_earlier_result(lake: Path, out: str) -> None:
    require_replaceable(str(lake.parent / out), str(lake))


@pytest.mark.parametrize("out", ["s3://b/lake", "s3://b/lake/x", "s3://b/", "s3://b/./lake/"])
def test_an_address_is_compared_with_that_of_the_lake(out: str) -> None:
    with pytest.raises(PipelineError, match="give a new directory"):
        require_replaceable(out, "s3://b/lake")
    require_replaceable(out, "s3://other/lake")
    require_replaceable("s3://b/lakes", "s3://b/lake")


def test_a_backtest_over_its_own_lake_ends_before_anything_is_read(lake: Path) -> None:
    class Unread(Lake):
        def __init__(self) -> None:
            self.path = str(lake)

    with pytest.raises(PipelineError, match="it is the lake"):
        backtest(Unread(), out=str(lake))


def test_decisions_can_be_written_twice_to_one_directory(
    recording: Recording, tmp_path: Path
) -> None:
    out = str(tmp_path / "decisions")
    assert backtest(recording.lake, out=out).out == out
    assert backtest(recording.lake, out=out).out == out


def no_space(*_: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("full", [True, False])
def test_a_result_that_cannot_be_saved_is_returned_with_a_note(
    lake: Path, monkeypatch: pytest.MonkeyPatch, full: bool
) -> None:
    class OnlyAPath(Lake):
        def __init__(self) -> None:
            self.path = str(lake)

    if full:
        monkeypatch.setattr(replay, "replace_file", no_space)
    else:
        (lake / "backtest.json").mkdir()
    result = Backtest(scope=ReplayScope(), messages=7)
    save_result(OnlyAPath(), result)
    [note] = result.notes
    assert note.startswith(f"the dashboard does not have this result: cannot write {lake}/backtest")
    assert note.endswith("No space left on device" if full else "Is a directory")
