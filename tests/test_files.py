"""Files are opened without waiting, read up to a bound, and secrets only from private ones."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from waypost.files import ExposedFile, UnsuitableFile, read_file, read_secret

Read = Callable[..., bytes]
both = pytest.mark.parametrize("read", [read_file, read_secret])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "file"
    path.touch(mode=0o600)
    return path


@both
def test_a_file_is_read_up_to_its_bound_and_rejected_beyond(read: Read, path: Path) -> None:
    path.write_bytes(b"x" * 10)
    assert read(path, 10) == b"x" * 10
    with pytest.raises(UnsuitableFile, match="larger than 9 bytes"):
        read(path, 9)


@both
def test_a_pipe_without_a_writer_is_rejected_at_once(read: Read, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(UnsuitableFile, match="not a regular file"):
        read(tmp_path / "pipe", 10)


@both
@pytest.mark.parametrize("other", ["/dev/zero", "/dev/null", "/"])
def test_devices_and_directories_are_rejected(read: Read, other: str) -> None:
    with pytest.raises(UnsuitableFile, match="not a regular file"):
        read(Path(other), 10)


def test_an_endless_file_of_the_system_is_bounded(path: Path) -> None:
    """The size that the system reports is not relied upon: files in /proc have none."""
    with pytest.raises(UnsuitableFile, match="larger than 10 bytes"):
        read_file("/proc/self/stat", 10)


@both
def test_a_missing_file_is_reported_as_missing(read: Read, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read(tmp_path / "none", 10)


def test_a_link_is_followed_only_where_that_is_allowed(path: Path, tmp_path: Path) -> None:
    path.write_bytes(b"1")
    (tmp_path / "link").symlink_to(path)
    assert read_secret(tmp_path / "link") == read_file(tmp_path / "link", 10) == b"1"
    with pytest.raises(OSError, match="symbolic links"):
        read_file(tmp_path / "link", 10, follow_links=False)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o610, 0o601, 0o666])
def test_a_secret_that_others_can_access_is_rejected_with_the_fix(path: Path, mode: int) -> None:
    path.chmod(mode)
    with pytest.raises(ExposedFile, match=f"chmod 600 {path}"):
        read_secret(path)


def test_the_group_may_read_a_key_only_if_root_owns_it(path: Path) -> None:
    path.chmod(0o640)
    if os.geteuid() == 0:
        assert read_secret(path, group_of_root=True) == b""
        os.chown(path, 1, -1)
    with pytest.raises(ExposedFile):
        read_secret(path, group_of_root=True)
    path.chmod(0o644)
    with pytest.raises(ExposedFile):
        read_secret(path, group_of_root=True)
