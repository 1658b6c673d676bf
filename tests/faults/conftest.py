"""Directories to damage: one journal, written once, copied for each test."""

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.history import write_history
from tests.faults.small_disks import Disk, PretendedDisk, RealDisk, mount_tmpfs, unmount
from tests.faults.syncs import Syncs, install_syncs


@pytest.fixture(scope="session")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("history") / "data"
    asyncio.run(write_history(data))
    return data


@pytest.fixture
def copy(history: Path, tmp_path: Path) -> Path:
    return shutil.copytree(history, tmp_path / "copy")


@pytest.fixture
def syncs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Syncs]:
    """Control of every `fdatasync` from here on."""
    installed = install_syncs(monkeypatch)
    yield installed
    installed.release()


@pytest.fixture(params=[pytest.param("tmpfs", marks=pytest.mark.process), "pretended"])
def disk(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Disk]:
    """An empty disk of 24 MiB, of which the relay's ballast takes 8."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if request.param == "pretended":
        yield PretendedDisk(directory, monkeypatch)
        return
    if not mount_tmpfs(directory):
        pytest.skip("mounting is not allowed here; the pretended disk stands in")
    yield RealDisk(directory)
    unmount(directory)
