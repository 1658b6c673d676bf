"""`waypost keys rotate` and `waypost keys unbind`, at a served relay."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.serve_process import ServeProcess, User, serving
from waypost.client import Agent, Identity, connect
from waypost.client.errors import SubjectTaken

pytestmark = pytest.mark.process


class Web(User):
    """A user with the keys of `agent.web`, which owns its name."""

    def __init__(self, relay: ServeProcess) -> None:
        super().__init__(relay.url, relay.home)
        self.create_keys("agent.web")
        self.file = self.key_of("agent.web")
        self.send()

    def send(self, *, exits: int = 0, key: Path | None = None) -> str:
        """Send a message with the keys; return what is on stderr."""
        used = str(key or self.file)
        return str(self("send", "agent.other", "hello", "--key", used, exits=exits).stderr)

    def files(self) -> set[str]:
        return {one.name for one in self.file.parent.iterdir() if ".key" in one.name}


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[ServeProcess]:
    with serving(tmp_path) as started:
        yield started


@pytest.fixture
def web(relay: ServeProcess) -> Web:
    return Web(relay)


def test_the_new_keys_take_the_place_of_the_old_ones(web: Web) -> None:
    old = Identity.load(web.file)
    shown = web.json("keys", "rotate", "agent.web")
    new = Identity.load(web.file)
    assert shown["public_key"] == new.public_key != old.public_key
    assert web.file.stat().st_mode & 0o777 == 0o600
    web.send()
    [kept] = web.file.parent.glob("*.old-*")
    assert Identity.load(kept).public_key == old.public_key
    rejected = web.send(key=kept, exits=1)
    assert "no longer owns agent.web" in rejected
    assert "waypost names bind" in rejected, "what to do"
    assert web.files() == {"agent.web.key", kept.name}


def test_a_rotation_goes_on_where_it_was_interrupted(web: Web) -> None:
    down = User("http://127.0.0.1:9", web.home)("keys", "rotate", "agent.web", exits=1)
    assert "no relay answers" in down.stderr
    unfinished = web.file.with_name("agent.web.key.new")
    meant = Identity.load(unfinished).public_key
    before = web.file.read_bytes()
    web("keys", "rotate", "agent.web")
    assert Identity.load(web.file).public_key == meant
    # As if the process had ended when the relay had agreed, before the file was replaced.
    web.file.replace(unfinished)
    web.file.touch(mode=0o600)
    web.file.write_bytes(before)
    web("keys", "rotate", "agent.web")
    assert Identity.load(web.file).public_key == meant
    web.send()


def test_keys_that_own_nothing_are_not_replaced(web: Web) -> None:
    web.create_keys("agent.free")
    before = web.files()
    assert "agent.free is bound to no key" in web("keys", "rotate", "agent.free", exits=1).stderr
    assert web.files() == before
    missing = web("keys", "rotate", "agent.nobody", exits=1).stderr
    assert "waypost keys new agent.nobody" in missing
    assert "--key" in web("keys", "rotate", exits=1).stderr


def test_a_lost_key_is_unbound_and_the_name_is_free_for_a_new_one(
    web: Web, relay: ServeProcess
) -> None:
    relay.operator()("keys", "unbind", "agent.web")
    assert "no longer owns agent.web" in web.send(exits=1)
    web.file.unlink()
    web.create_keys("agent.web")
    web.send()


def test_what_was_sealed_to_the_old_keys_opens_with_the_new_file(
    web: Web, relay: ServeProcess
) -> None:
    old = Identity.load(web.file)

    async def send() -> None:
        async with connect(relay.url, Identity.new("agent.friend")) as friend:
            await friend.send("agent.web", "a secret", seal_to=old.card)

    async def read() -> object:
        async with connect(relay.url, Identity.load(web.file)) as agent:
            message = await agent.receive(60)
            assert message.problem is None
            return message.payload

    asyncio.run(send())
    web("keys", "rotate", "agent.web")
    web("keys", "rotate", "agent.web")
    assert asyncio.run(read()) == "a secret"


def test_an_agent_that_is_connected_learns_that_its_key_was_rotated(
    web: Web, relay: ServeProcess
) -> None:
    async def act() -> str:
        async with connect(relay.url, Identity.load(web.file)) as agent:
            await asyncio.to_thread(web, "keys", "rotate", "agent.web")
            with pytest.raises(SubjectTaken) as ended:
                await agent.receive(60)
            return str(ended.value)

    assert "new key" in asyncio.run(act())


async def are_kept_out(url: str, *keys: Identity) -> None:
    """Neither a connection nor a token is granted to these keys."""
    for one in keys:
        with pytest.raises(SubjectTaken, match="no longer owns"):
            async with connect(url, one):
                pass


async def talk(agent: Agent, other: Agent) -> None:
    sent = await agent.send(other.subject, "ping")
    message = await other.receive(60)
    assert message.id == sent.message_id
    await message.reply("pong")
    await message.ack()
    async with await agent.receive(60) as answer:
        assert answer.payload == "pong"


async def ends(agent: Agent) -> None:
    with pytest.raises(SubjectTaken):
        await agent.receive(60)


async def test_one_key_is_rotated_and_another_unbound_while_agents_talk(tmp_path: Path) -> None:
    """The old keys are rejected from then on, also after a crash; the other agents talk on."""
    old = [Identity.new(name) for name in ("agent.rotated", "agent.unbound")]
    others = [Identity.new(name) for name in ("agent.ann", "agent.bob")]
    key_file = tmp_path / "rotated.key"
    old[0].save(key_file)
    with serving(tmp_path) as first:
        url, user, operator = first.url, first.user(), first.operator()
        async with connect(url, others[0]) as ann, connect(url, others[1]) as bob:
            async with connect(url, old[0]) as rotated, connect(url, old[1]) as unbound:
                await asyncio.gather(talk(rotated, ann), talk(unbound, bob))
                await asyncio.to_thread(user, "keys", "rotate", "--key", str(key_file))
                await asyncio.to_thread(operator, "keys", "unbind", "agent.unbound")
                await asyncio.gather(ends(rotated), ends(unbound), talk(ann, bob))
            new = Identity.load(key_file)
            await are_kept_out(url, *old)
            for subject in ("agent.rotated", "agent.unbound"):
                assert (await ann.send(subject, "for the next key")).delivered_to == 1
        assert first.end(signal.SIGKILL) == -signal.SIGKILL
    with serving(tmp_path, "--port", url.rpartition(":")[2]):
        await are_kept_out(url, *old)
        for identity in (new, Identity.new("agent.unbound")):
            async with connect(url, identity) as agent:
                assert (await agent.receive(60)).payload == "for the next key"
        await are_kept_out(url, *old)
