"""`config.json` and `access-rules.json` behind links, as in a volume of Kubernetes."""

import json
import os
from pathlib import Path

import pytest

from tests.eventually import event_loop_turns, eventually
from tests.relay.observing import events, read, send, write
from waypost import AccessDenied, AccessRule, Relay, RelayError

RULE = {"from": "agent.b", "to": "agent.a", "action": "deny", "priority": 0}


class Volume:
    """A directory of files that all change in one step, by the renaming of a link."""

    def __init__(self, root: Path, data: Path) -> None:
        self._root, self._data = root, data
        self._versions = 0
        root.mkdir()
        data.mkdir(mode=0o700)

    def publish(self, files: dict[str, object]) -> None:
        """Write a new version of all files, then let `..data` lead to it."""
        self._versions += 1
        version = self._root / f"..version-{self._versions}"
        for name, content in files.items():
            write(version / name, content)
        os.symlink(version.name, self._root / "..data_tmp")
        os.replace(self._root / "..data_tmp", self._root / "..data")

    def link(self, *names: str) -> None:
        """Link files of the volume into the data directory."""
        for name in names:
            os.symlink(f"..data/{name}", self._root / name)
            os.symlink(self._root / name, self._data / name)

    def withdraw(self) -> None:
        """Let every link lead nowhere, as if the volume were not mounted."""
        os.unlink(self._root / "..data")


@pytest.fixture
def volume(tmp_path: Path, data: Path) -> Volume:
    return Volume(tmp_path / "volume", data)


async def test_settings_behind_a_link_change_with_its_target(start, volume: Volume) -> None:
    volume.publish({"config.json": {"maxHops": 3}})
    volume.link("config.json")
    relay: Relay = await start(watch_files=True)
    assert relay.settings.max_hops == 3
    for hops in (4, 5):
        volume.publish({"config.json": {"maxHops": hops}})
        await eventually(lambda hops=hops: relay.settings.max_hops == hops, "the new settings")


async def test_rules_behind_a_link_change_with_its_target(start, volume: Volume) -> None:
    volume.publish({"access-rules.json": []})
    volume.link("access-rules.json")
    relay: Relay = await start(watch_files=True)
    relay.register_endpoint("agent.a")
    assert (await send(relay)).delivered_to == 1
    volume.publish({"access-rules.json": [RULE]})
    await eventually(relay.access.list_rules, "the new rules")
    with pytest.raises(AccessDenied):
        await send(relay)


async def test_a_link_that_leads_nowhere_is_a_problem_and_not_a_missing_file(
    start, volume: Volume, data: Path
) -> None:
    volume.publish({"config.json": {"maxHops": 3}, "access-rules.json": []})
    volume.link("config.json", "access-rules.json")
    relay: Relay = await start(watch_files=True)
    relay.register_endpoint("agent.a")
    volume.withdraw()
    await eventually(lambda: len(relay.metrics().problems) == 2, "two problems")
    assert all("a link to a file that does not exist" in one for one in relay.metrics().problems)
    assert relay.settings.max_hops == 3
    with pytest.raises(AccessDenied):
        await send(relay)
    volume.publish({"config.json": {"maxHops": 4}, "access-rules.json": []})
    await eventually(lambda: relay.metrics().problems == [], "the end of the problems")
    assert (relay.settings.max_hops, (await send(relay)).delivered_to) == (4, 1)


async def test_a_change_through_the_relay_is_written_to_the_target_of_the_link(
    start, volume: Volume, data: Path, tmp_path: Path
) -> None:
    volume.publish({"config.json": {"maxHops": 3}, "access-rules.json": []})
    volume.link("config.json", "access-rules.json")
    relay: Relay = await start(watch_files=True)
    relay.settings_file.replace(b'{"maxHops": 4}')
    relay.access.add_rule(AccessRule("agent.b", "agent.a", "deny"))
    assert (data / "config.json").is_symlink()
    assert (data / "access-rules.json").is_symlink()
    assert json.loads(read(tmp_path / "volume" / "..version-1" / "config.json")) == {"maxHops": 4}
    volume.publish({"config.json": {"maxHops": 5}, "access-rules.json": []})
    await eventually(lambda: relay.settings.max_hops == 5, "the new settings")
    await eventually(lambda: relay.access.list_rules() == [], "the new rules")


async def test_a_target_that_cannot_be_written_is_an_error_and_changes_nothing(
    start, data: Path, tmp_path: Path
) -> None:
    relay: Relay = await start()
    os.symlink(tmp_path / "missing" / "config.json", data / "config.json")
    with pytest.raises(RelayError, match=r"config\.json could not be written: No such file"):
        relay.settings_file.replace(b'{"maxHops": 4}')
    assert relay.settings.max_hops == 5


async def test_an_unchanged_file_is_not_reported_twice(
    start, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    relay: Relay = await start(watch_files=True)
    write(data / "config.json", "{")
    await eventually(lambda: relay.metrics().problems, "the problem")
    write(data / "access-rules.json", [RULE])
    await eventually(relay.access.list_rules, "the new rules")
    await event_loop_turns()
    assert caplog.text.count("config.json is ignored") == 1
    await relay.sync()
    assert [one["cause"] for one in events(data, "settings")] == ["start", "reload"]
