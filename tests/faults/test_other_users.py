"""Other users of the machine: nothing that the relay creates is accessible to them, at any time."""

import asyncio
import os
import shutil
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.cli.conftest import CommandLine
from tests.cli.serve_process import serving
from tests.eventually import eventually
from tests.harness.listening_relay import listening
from waypost import AccessRule, Relay, Settings
from waypost.client import Identity, connect
from waypost.relay.errors import DataDirUnusable


@pytest.fixture(autouse=True, params=[0o000, 0o022], ids=["umask 000", "umask 022"])
def umask(request: pytest.FixtureRequest) -> Iterator[None]:
    """Let the system take no permission away, or only those to write."""
    before = os.umask(request.param)
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


def write_private(path: Path, content: str) -> None:
    """Write a file as a careful process does, whatever the umask."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "w") as file:
        file.write(content)


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


async def use_every_file(data: Path) -> None:
    """Let an embedded relay write settings, rules, subscriptions and a rejected drop-in."""
    settings = Settings(watch_files=False)
    async with Relay(data, settings=settings) as relay:
        relay.settings_file.replace(b'{"maxHops": 4}')
        relay.access.add_rule(AccessRule("agent.x", "agent.y", "deny"))
        relay.subscribe("agent.>", lambda envelope: None)
        await eventually((data / "subscriptions.json").exists, "the file")
        maildir = relay.register_endpoint("agent.a").maildir_path
        assert maildir is not None
        write_private(maildir / "new" / "bad", "not json")
        os.utime(maildir / "new" / "bad", (0, 0))
    async with Relay(data, settings=settings):
        assert (maildir / "failed" / "bad").exists()


def test_files_of_operators_and_commands_are_private(tmp_path: Path) -> None:
    data, waypost = tmp_path / "data", CommandLine(tmp_path / "data")
    write_private(tmp_path / "new.json", '{"maxHops": 3}')
    with watched(tmp_path) as found:
        asyncio.run(use_every_file(data))
        waypost("config", "save", str(tmp_path / "new.json"))
        waypost("rules", "add", "deny", "agent.p", "agent.q")
        waypost("verify", "--repair")
        waypost("rebuild")
        shutil.rmtree(data / "journal")
        waypost("rebuild", "--from-mailboxes")
        waypost("simulate", "--messages", "50", "--agents", "24", "--out", str(tmp_path / "made"))
    assert found | exposed(tmp_path) == set()


async def test_an_unfinished_file_that_others_can_read_is_not_used(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with Relay(data, settings=Settings(watch_files=False)) as relay:
        prepared = data / ".config.json.tmp"
        prepared.touch()
        prepared.chmod(0o666)
        relay.settings_file.replace(b'{"maxHops": 4}')
        assert exposed(data) == set()
        elsewhere = tmp_path / "elsewhere"
        elsewhere.write_text("kept")
        prepared.symlink_to(elsewhere)
        relay.settings_file.replace(b'{"maxHops": 3}')
    assert elsewhere.read_text() == "kept"


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
