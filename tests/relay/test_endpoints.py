"""Endpoints: registered subjects with a mailbox."""

import hashlib
import stat
from pathlib import Path

import pytest

from tests.relay.observing import events, files, payloads, send
from waypost import InvalidInput, InvalidSubject, Relay, UnknownEndpoint
from waypost.relay.delivery import endpoints
from waypost.testing import ManualClock
from waypost.wire.envelopes import instant


async def test_an_endpoint_tells_its_subject_its_hash_and_since_when(
    start, clock: ManualClock, data: Path
) -> None:
    relay = await start()
    endpoint = relay.register_endpoint("agent.a")
    digest = hashlib.sha256(b"agent.a").hexdigest()[:12]
    assert (endpoint.subject, endpoint.hash) == ("agent.a", digest)
    assert endpoint.maildir_path == data / "mailboxes" / digest
    assert endpoint.registered_at == instant(clock())


async def test_the_folders_of_an_endpoint_exist_at_once_for_their_owner_only(
    start, data: Path
) -> None:
    relay = await start()
    endpoint = relay.register_endpoint("agent.a")
    assert files(endpoint) == {"cur": [], "failed": [], "new": [], "tmp": []}
    assert modes(endpoint.maildir_path) == {
        "cur": 0o700,
        "failed": 0o700,
        "new": 0o700,
        "tmp": 0o700,
    }
    assert modes(data.parent)["data"] == 0o700


def modes(directory: Path | None) -> dict[str, int]:
    assert directory is not None
    return {path.name: stat.S_IMODE(path.stat().st_mode) for path in sorted(directory.iterdir())}


async def test_without_files_an_endpoint_has_no_path(start, data: Path) -> None:
    relay = await start(storage="journal")
    assert relay.register_endpoint("agent.a").maildir_path is None
    assert list((data / "mailboxes").glob("*")) == []


async def test_registering_again_changes_nothing(
    relay: Relay, clock: ManualClock, data: Path
) -> None:
    first = relay.get_endpoint("agent.a")
    await send(relay, "kept")
    clock.advance_ms(1000)
    assert relay.register_endpoint("agent.a") == first
    await relay.idle()
    assert payloads(await relay.lease("agent.a")) == ["kept"]
    assert len(events(data, "endpoint")) == 1


async def test_endpoints_are_listed_in_the_order_they_were_registered(start) -> None:
    relay = await start()
    for name in ("agent.z", "agent.a", "other.m"):
        relay.register_endpoint(name)
    assert [one.subject for one in relay.list_endpoints()] == ["agent.z", "agent.a", "other.m"]


async def test_an_unregistered_endpoint_is_not_found(relay: Relay) -> None:
    assert relay.get_endpoint("agent.nobody") is None
    with pytest.raises(UnknownEndpoint, match=r"agent\.nobody"):
        relay.unregister_endpoint("agent.nobody")


@pytest.mark.parametrize(
    "subject", ["", ".", "a..b", "agent.*", ">", "agent a", "../x", "ü", "a.b.", None, 5, "x" * 256]
)
async def test_registering_an_invalid_subject_fails(relay: Relay, subject: str) -> None:
    with pytest.raises(InvalidSubject):
        relay.register_endpoint(subject)


async def test_an_unregistered_endpoint_accepts_no_more_messages(relay: Relay) -> None:
    relay.unregister_endpoint("agent.a")
    assert relay.list_endpoints() == []
    assert (await send(relay)).delivered_to == 0
    assert (await send(relay, to="agent.>")).delivered_to == 0


async def test_an_empty_endpoint_leaves_nothing_behind(relay: Relay, data: Path) -> None:
    relay.unregister_endpoint("agent.a")
    await relay.idle()
    assert list((data / "mailboxes").glob("*")) == []
    assert relay.metrics().endpoints == []


async def test_messages_of_an_unregistered_endpoint_are_kept_for_its_next_registration(
    relay: Relay,
) -> None:
    await send(relay, "kept")
    relay.unregister_endpoint("agent.a")
    await relay.idle()
    relay.register_endpoint("agent.a")
    assert payloads(await relay.lease("agent.a")) == ["kept"]


async def test_messages_of_an_unregistered_endpoint_can_be_leased(relay: Relay, data: Path) -> None:
    result = await send(relay)
    relay.unregister_endpoint("agent.a")
    assert len(await relay.lease("agent.a")) == 1
    await relay.ack("agent.a", result.message_id)
    await relay.idle()
    assert list((data / "mailboxes").glob("*")) == []
    with pytest.raises(UnknownEndpoint):
        await relay.lease("agent.a")


async def test_registering_right_after_unregistering_keeps_the_folders(relay: Relay) -> None:
    relay.unregister_endpoint("agent.a")
    endpoint = relay.register_endpoint("agent.a")
    result = await send(relay)
    await relay.idle()
    assert files(endpoint)["new"] == [result.message_id]
    assert relay.metrics().breakers == {}


async def test_a_subject_registered_again_is_registered_since_then(
    relay: Relay, clock: ManualClock
) -> None:
    relay.unregister_endpoint("agent.a")
    clock.advance_ms(1000)
    assert relay.register_endpoint("agent.a").registered_at == instant(clock())


async def test_subjects_are_case_sensitive(relay: Relay) -> None:
    relay.register_endpoint("Agent.a")
    await send(relay, to="Agent.a")
    assert await relay.lease("agent.a") == []


async def test_there_is_a_bound_on_endpoints(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "endpoints_max", 2)
    relay.register_endpoint("agent.c")
    with pytest.raises(InvalidInput, match="at most 2 are allowed"):
        relay.register_endpoint("agent.d")
    relay.unregister_endpoint("agent.a")
    relay.register_endpoint("agent.d")
    assert [one.subject for one in relay.list_endpoints()] == ["agent.c", "agent.d"]
