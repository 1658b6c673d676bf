"""`waypost mcp --new`: each window of an assistant gets keys and a name of its own."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually
from tests.harness.listening_relay import ListeningRelay
from tests.mcp.processes import ended, start
from tests.mcp.test_command import rejected
from waypost.client import Identity, connect

__all__ = ["rejected"]


@pytest.fixture
def windows(tmp_path: Path, relay: ListeningRelay) -> Iterator[Any]:
    """Start windows of one person."""
    with ExitStack() as stack:

        def begin(*options: str) -> "subprocess.Popen[str]":
            process = start(tmp_path, "--new", "--url", relay.url, *options)
            stack.callback(ended, process)
            return process

        yield begin


async def connected(relay: ListeningRelay, *subjects: str) -> None:
    async def are_there() -> bool:
        return {one.subject for one in relay.context.hub.connected()} == set(subjects)

    await eventually(are_there, f"{subjects} to be connected")


@pytest.mark.process
async def test_each_window_gets_a_name_of_its_own_and_the_next_one_a_free_one(
    windows: Any, relay: ListeningRelay
) -> None:
    me = ("--subject", "agent.me", "--skill", "python")
    first = windows(*me)
    await connected(relay, "agent.me")
    second = windows(*me)
    await connected(relay, "agent.me", "agent.me.2")
    keys = {relay.context.authenticator.key_of(one) for one in ("agent.me", "agent.me.2")}
    first.communicate("", timeout=60)
    await connected(relay, "agent.me.2")
    windows(*me)
    await connected(relay, "agent.me", "agent.me.2")
    names = ("agent.me", "agent.me.2")
    assert {relay.context.authenticator.key_of(one) for one in names} == keys
    found = await relay.context.directory.find("agent.me", "python", "", 10)
    assert [one.subject for one in found.agents] == ["agent.me", "agent.me.2"]
    assert second.poll() is None


@pytest.mark.process
async def test_a_name_that_another_key_owns_is_passed_over(
    windows: Any, relay: ListeningRelay, tmp_path: Path
) -> None:
    async with connect(relay.url, Identity.new("agent.me")):
        windows("--subject", "agent.me")
        await connected(relay, "agent.me", "agent.me.2")
    folder = tmp_path / ".config" / "waypost"
    assert sorted(one.name for one in folder.glob("*.key")) == ["agent.me.2.key"]


def test_options_that_do_not_go_together_are_named(rejected: Any, tmp_path: Path) -> None:
    key = str(tmp_path / "some.key")
    assert "--key FILE, not both" in rejected("--new", "--key", key, exits=2)
    assert "--shared" in rejected("--new", "--shared", exits=2)
    assert "lower-case" in rejected("--new", "--skill", "Two Words", exits=2)
    assert "--new" in rejected(exits=1)
