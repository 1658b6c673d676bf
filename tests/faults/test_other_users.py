"""Other users of the machine: nothing that the relay creates is accessible to them, at any time."""

import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.serve_process import serving
from tests.harness.listening_relay import listening
from waypost import Relay, Settings
from waypost.client import Identity, connect
from waypost.relay.errors import DataDirUnusable


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Let the system take no permission away."""
    before = os.umask(0)
    yield
    os.umask(before)


def exposed(root: Path) -> set[str]:
    """Return every file and directory below `root` that others can access."""
    found = set()
    for directory, directories, files in os.walk(root):
        for name in (*directories, *files):
            try:
                mode = os.lstat(f"{directory}/{name}").st_mode
            except FileNotFoundError:
                continue
            if mode & 0o077 and not stat.S_ISLNK(mode):
                found.add(os.path.relpath(f"{directory}/{name}", root))
    return found


@contextmanager
def watched(root: Path) -> Iterator[set[str]]:
    """Look at the files below `root` all the time; fill the result with exposed ones."""
    found: set[str] = set()
    done = threading.Event()

    def watch() -> None:
        while not done.is_set():
            found.update(exposed(root))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()


async def test_no_file_is_accessible_to_others_during_traffic_or_after(tmp_path: Path) -> None:
    data, friend_keys = tmp_path / "data", Identity.new("agent.friend")
    with watched(tmp_path) as found:
        for _ in range(3):
            async with listening(data, storage="maildir", durability="fsync") as relay:
                async with connect(relay.url, friend_keys) as friend:
                    for number in range(20):
                        await friend.send(f"agent.a{number % 3}", "x" * 300 * number)
                embedded = relay.context.relay
                for one in await embedded.lease("agent.a1"):
                    await embedded.ack("agent.a1", one.id)
                await embedded.seal_journal()
                await embedded.rebuild_index()
                embedded.subscribe("agent.a2", lambda envelope: 1 / 0)
                await embedded.idle()
                async with httpx.AsyncClient(base_url=relay.url) as http:
                    assert (await http.get("/readyz")).status_code == 200
            (segment, *_) = sorted((data / "journal").glob("*.jsonl"))
            content = bytearray(segment.read_bytes())
            content[40] ^= 1  # damaged bytes are set aside at the next start
            segment.write_bytes(content)
            (data / "index.db").unlink()
    assert found | exposed(tmp_path) == set()
    assert (data / "journal" / "damaged").is_dir()


@pytest.mark.parametrize("mode", [0o750, 0o701, 0o777, 0o710])
async def test_a_data_directory_that_others_can_enter_is_rejected_with_the_fix(
    tmp_path: Path, mode: int
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    with pytest.raises(DataDirUnusable, match=f"chmod 700 {data}"):
        await Relay(data).open()
    assert os.listdir(data) == []
    data.chmod(0o700)
    async with Relay(data, settings=Settings(watch_files=False)):
        pass


async def test_the_directory_above_may_be_open_to_all(tmp_path: Path) -> None:
    os.chmod(tmp_path, 0o1777)
    async with Relay(tmp_path / "data", settings=Settings(watch_files=False)):
        assert stat.S_IMODE((tmp_path / "data").stat().st_mode) == 0o700


@pytest.mark.process
def test_the_process_of_a_served_relay_creates_private_files_only(tmp_path: Path) -> None:
    with serving(tmp_path) as relay:
        status = Path(f"/proc/{relay.process.pid}/status").read_text()
        assert "Umask:\t0077" in status
        assert exposed(relay.data) == set()
