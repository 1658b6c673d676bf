"""Sealed messages from a relay that lies: changed keys, changed headers, replays."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.client.fake_relay import FakeConnection, run_fake_relay
from tests.client.session_harness import message
from tests.client.test_sealing import KEPT, KEPT_BOB
from tests.eventually import event_loop_turns
from waypost.client import Agent, ClientOptions, Identity, connect, seal_memory
from waypost.client.identity import KeyFileExposed, KeyFileInvalid
from waypost.client.seal_memory import SealMemory
from waypost.client.sealing import CardChanged, seal
from waypost.client.websocket import now_ms
from waypost.wire import frames
from waypost.wire.envelopes import instant
from waypost.wire.handshake import to_text
from waypost.wire.sealing import Circumstances

ANN = Identity.new("agent.ann")
IMPOSTOR = Identity.new("agent.ann")
SECRET = {"secret": "the launch is on Tuesday"}
DAY_MS = 24 * 3600 * 1000


@pytest.fixture
def bob(tmp_path: Path) -> Identity:
    identity = Identity.new("agent.bob")
    identity.save(tmp_path / "bob.key")
    return identity


def sealed(
    to: Identity,
    message_id: str = "m-1",
    *,
    by: Identity = ANN,
    age_ms: int = 0,
    reply_to: str | None = "agent.ann.replies",
    parent: str | None = "m-0",
) -> frames.Message:
    """Return a message that `by` has sealed, as an honest relay delivers it."""
    at_ms = now_ms() - age_ms
    under = Circumstances(sealed_at=at_ms, reply_to=reply_to, parent=parent)
    payload = seal(SECRET, to=to.card, by=by, message_id=message_id, under=under)
    delivered = message(message_id, payload, sender="agent.ann", parent=parent)
    delivered.envelope = msgspec.structs.replace(
        delivered.envelope, reply_to=reply_to, created_at=instant(1000 * at_ms)
    )
    return delivered


@asynccontextmanager
async def delivering(
    identity: Identity, *messages: frames.Message, **options: Any
) -> AsyncIterator[Agent]:
    """Connect to a relay that delivers `messages`."""

    async def deliver(connection: FakeConnection) -> None:
        await connection.accept()
        await connection.send_frame(*messages)
        await connection.stay_open()

    usual = ClientOptions(connect_timeout_s=60.0, close_timeout_s=0.2, **options)
    async with run_fake_relay(deliver) as url, connect(url, identity, options=usual) as agent:
        yield agent


async def problem_of(identity: Identity, delivered: frames.Message, **options: Any) -> str:
    """Return why a message is not opened; empty if it is."""
    async with delivering(identity, delivered, **options) as agent:
        received = await agent.receive(60)
        assert received.payload == (None if received.problem else SECRET)
        await received.ack()
        return received.problem or ""


# --- Keys ----------------------------------------------------------------------------------------


async def test_the_first_key_of_a_sender_is_kept_across_processes(
    bob: Identity, tmp_path: Path
) -> None:
    assert await problem_of(bob, sealed(bob, "m-1")) == ""
    problem = await problem_of(Identity.load(tmp_path / "bob.key"), sealed(bob, "m-2", by=IMPOSTOR))
    assert "another key" in problem
    assert str(tmp_path / "bob.key.known") in problem
    assert "trust()" in problem
    assert await problem_of(bob, sealed(bob, "m-3")) == ""


async def test_a_changed_key_is_accepted_once_its_line_is_removed(
    bob: Identity, tmp_path: Path
) -> None:
    await problem_of(bob, sealed(bob, "m-1"))
    (tmp_path / "bob.key.known").write_text("")
    assert await problem_of(bob, sealed(bob, "m-2", by=IMPOSTOR)) == ""


async def test_keys_without_a_file_are_remembered_in_memory() -> None:
    bob = Identity.new("agent.bob")
    async with delivering(bob, sealed(bob, "m-1"), sealed(bob, "m-2", by=IMPOSTOR)) as agent:
        first, second = [await agent.receive(60) for _ in range(2)]
        assert (first.problem, second.payload) == (None, None)
        assert "another key" in (second.problem or "")
        agent.trust(IMPOSTOR.card)
        with pytest.raises(CardChanged, match=r"another key.*known of agent\.ann"):
            await agent.send("agent.ann", SECRET, seal_to=ANN.card)


async def test_nothing_is_sealed_to_a_card_with_a_changed_key(
    bob: Identity, tmp_path: Path
) -> None:
    async with delivering(bob, sealed(bob)) as agent:
        await agent.receive(60)
        with pytest.raises(CardChanged) as raised:
            await agent.send("agent.ann", SECRET, seal_to=IMPOSTOR.card)
        assert str(tmp_path / "bob.key.known") in str(raised.value)


async def test_the_key_on_a_card_is_remembered_when_it_is_first_used(bob: Identity) -> None:
    async with delivering(bob) as agent:
        sending = asyncio.create_task(agent.send("agent.ann", SECRET, seal_to=ANN.card))
        await event_loop_turns()
        with pytest.raises(CardChanged):
            await agent.send("agent.ann", SECRET, seal_to=IMPOSTOR.card)
        sending.cancel()


# --- Headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"reply_to": "agent.mallory"}, "delivered for agent.mallory"),
        ({"reply_to": None}, "delivered for None"),
        ({"later": timedelta(hours=2)}, "the relay has changed the time"),
        ({"later": timedelta(hours=-1)}, "the relay has changed the time"),
        ({"parent": "m-9"}, "delivered as following m-9"),
    ],
    ids=str,
)
async def test_a_changed_header_is_reported_and_the_content_withheld(
    bob: Identity, change: dict[str, Any], cause: str
) -> None:
    delivered = sealed(bob)
    if "parent" in change:
        delivered.parent = change["parent"]
    elif "later" in change:
        delivered.envelope = msgspec.structs.replace(
            delivered.envelope, created_at=delivered.envelope.created_at + change["later"]
        )
    else:
        delivered.envelope = msgspec.structs.replace(delivered.envelope, **change)
    assert cause in await problem_of(bob, delivered)


async def test_the_time_of_the_seal_is_that_of_the_sender(bob: Identity) -> None:
    delivered = sealed(bob, age_ms=60_000)
    async with delivering(bob, delivered) as agent:
        received = await agent.receive(60)
        assert received.sealed_at == delivered.envelope.created_at


async def test_an_old_seal_does_not_open(bob: Identity) -> None:
    assert "sealed 8 days ago" in await problem_of(bob, sealed(bob, age_ms=8 * DAY_MS))
    older = sealed(bob, "m-2", age_ms=8 * DAY_MS)
    assert await problem_of(bob, older, sealed_max_age_s=9 * 24 * 3600.0) == ""


@pytest.mark.parametrize("is_trusted", [False, True])
async def test_a_seal_of_version_1_opens_unless_its_sender_is_trusted(is_trusted: bool) -> None:
    async def deliver_when_asked(connection: FakeConnection) -> None:
        await connection.accept()
        await connection.receive_frame()
        await connection.send_frame(message("message-1", KEPT, sender="agent.alice"))
        await connection.stay_open()

    alice = msgspec.structs.replace(ANN.card, subject="agent.alice", public_key=KEPT["by"])
    async with run_fake_relay(deliver_when_asked) as url, connect(url, KEPT_BOB) as agent:
        if is_trusted:
            agent.trust(alice)
        asking = asyncio.create_task(agent.send("agent.alice", "what is new?"))
        received = await agent.receive(60)
        asking.cancel()
        assert received.sealed_at is None
        assert received.payload == (None if is_trusted else {"text": "hello"})
        assert ("version 1" in (received.problem or "")) == is_trusted


# --- Replays -------------------------------------------------------------------------------------


async def test_an_acknowledged_seal_does_not_open_again_in_another_process(
    bob: Identity, tmp_path: Path
) -> None:
    delivered = sealed(bob)
    assert await problem_of(bob, delivered) == ""
    replayed = await problem_of(Identity.load(tmp_path / "bob.key"), delivered)
    assert "opened and acknowledged before" in replayed


async def test_an_acknowledged_seal_does_not_open_again_after_its_id_is_forgotten() -> None:
    bob = Identity.new("agent.bob")
    first = sealed(bob, "m-1")

    async def replay(connection: FakeConnection) -> None:
        await connection.accept()
        for delivered in (first, sealed(bob, "m-2"), first):
            await connection.send_frame(delivered)
            await connection.receive_frame()  # the ack
        await connection.stay_open()

    options = ClientOptions(remembered_max_ids=1)
    async with run_fake_relay(replay) as url, connect(url, bob, options=options) as agent:
        problems = []
        for _ in range(3):
            received = await agent.receive(60)
            await received.ack()
            problems.append(received.problem or "")
    assert problems[:2] == ["", ""]
    assert "opened and acknowledged before" in problems[2]


async def test_an_unacknowledged_seal_opens_at_every_delivery(bob: Identity) -> None:
    delivered = sealed(bob)
    for _ in range(3):
        async with delivering(bob, delivered) as agent:
            assert (await agent.receive(60)).payload == SECRET


async def test_a_seal_does_not_open_under_another_id(bob: Identity) -> None:
    moved = sealed(bob)
    moved.envelope = msgspec.structs.replace(moved.envelope, id="m-2")
    assert "the seal is broken" in await problem_of(bob, moved)


# --- The files -----------------------------------------------------------------------------------


async def test_files_are_private_and_may_be_elsewhere(bob: Identity, tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    await problem_of(bob, sealed(bob), seal_memory=str(tmp_path / "state" / "bob"))
    for name in ("bob.known", "bob.opened"):
        assert (tmp_path / "state" / name).stat().st_mode & 0o777 == 0o600
        assert not (tmp_path / f"{name.replace('.', '.key.')}").exists()


async def test_a_file_that_others_can_write_is_rejected(bob: Identity, tmp_path: Path) -> None:
    await problem_of(bob, sealed(bob))
    (tmp_path / "bob.key.known").chmod(0o666)
    with pytest.raises(KeyFileExposed, match="chmod 600"):
        await problem_of(bob, sealed(bob))


async def test_a_file_that_cannot_be_written_costs_a_warning_only(
    bob: Identity, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert await problem_of(bob, sealed(bob), seal_memory=str(tmp_path / "no" / "bob")) == ""
    assert "cannot write" in caplog.text


def key(number: int) -> str:
    return to_text(b"\x02" + number.to_bytes(31))


def test_a_torn_line_is_ignored_and_any_other_damage_is_reported(tmp_path: Path) -> None:
    base, known = tmp_path / "bob", tmp_path / "bob.known"
    memory = SealMemory(base)
    assert memory.check_key("agent.a", key(1)) is None
    with known.open("a") as file:
        file.write("agent.b AAAA")
    memory = SealMemory(base)
    assert memory.check_key("agent.b", key(2)) is None
    memory = SealMemory(base)
    assert memory.check_key("agent.a", key(1)) is None
    assert "another key" in (memory.check_key("agent.b", key(3)) or "")
    known.write_text(known.read_text().rstrip())  # as some editors do
    assert "another key" in (SealMemory(base).check_key("agent.b", key(3)) or "")
    known.write_text("agent.a not a key\n")
    with pytest.raises(KeyFileInvalid, match=r"remove 'agent\.a not a key'"):
        SealMemory(base)


def test_a_flood_of_names_displaces_no_known_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal_memory, "KNOWN_KEYS_MAX", 10)
    memory = SealMemory(tmp_path / "bob")
    for number in range(100):
        assert memory.check_key(f"agent.a{number}", key(number)) is None
    for _ in range(2):
        assert "another key" in (memory.check_key("agent.a0", key(500)) or "")
        assert memory.check_key("agent.a50", key(500)) is None  # not known
        memory = SealMemory(tmp_path / "bob")


def test_opened_seals_are_bounded_in_memory_and_on_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(seal_memory, "OPENED_SEALS_MAX", 10)
    memory = SealMemory(tmp_path / "bob")
    for number in range(100):
        memory.mark_opened(f"seal-{number}")
    again = SealMemory(tmp_path / "bob")
    for one in (memory, again):
        assert [n for n in range(100) if one.is_opened(f"seal-{n}")] == list(range(90, 100))
    assert len((tmp_path / "bob.opened").read_text().splitlines()) <= 20
