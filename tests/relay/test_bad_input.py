"""Misuse: each kind has its exception, with a text that names the remedy."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import waypost
from tests.relay.observing import send, write
from waypost import (
    AccessRule,
    DataDirInUse,
    DataDirUnusable,
    Draft,
    InvalidInput,
    InvalidMessage,
    InvalidSubject,
    PublishResult,
    Relay,
    RelayStopped,
    Settings,
    Signal,
    SignalType,
    WaypostError,
)
from waypost.testing import ManualClock

NO_SUBJECTS = ["", ".", "a..b", ".a", "a.", "a b", "a\n", "ü", "a*", None, 5, b"a", "x" * 256]
TOO_LONG = ".".join(["a"] * 17)


@pytest.mark.parametrize("subject", [*NO_SUBJECTS, "agent.>.a", TOO_LONG])
async def test_publishing_to_an_invalid_subject_is_rejected(relay: Relay, subject: Any) -> None:
    with pytest.raises(InvalidSubject, match="invalid subject"):
        await send(relay, to=subject)


@pytest.mark.parametrize("sender", [*NO_SUBJECTS, "agent.*", ">", TOO_LONG])
async def test_a_sender_must_be_a_subject(relay: Relay, sender: Any) -> None:
    with pytest.raises(InvalidSubject):
        await send(relay, sender=sender)


@pytest.mark.parametrize("reply_to", ["", "agent.*", "a b", 5])
async def test_a_reply_address_must_be_a_subject(relay: Relay, reply_to: Any) -> None:
    with pytest.raises(InvalidSubject):
        await send(relay, reply_to=reply_to)


async def test_sixteen_tokens_and_255_characters_are_still_a_subject(relay: Relay) -> None:
    for subject in (".".join(["a"] * 16), "x" * 255):
        relay.register_endpoint(subject)
        assert (await send(relay, to=subject)).delivered_to == 1


@pytest.mark.parametrize(
    "payload",
    [b"bytes", object(), {"a": object()}, "\ud800", {"a": {1j: 1}}],
    ids=lambda payload: type(payload).__name__,
)
async def test_a_payload_that_is_not_json_is_rejected(relay: Relay, payload: object) -> None:
    with pytest.raises(InvalidMessage):
        await send(relay, payload)


async def test_a_payload_nested_too_deep_is_rejected(relay: Relay) -> None:
    payload: object = 1
    for _ in range(65):
        payload = [payload]
    with pytest.raises(InvalidMessage, match="64 levels"):
        await send(relay, payload)


@pytest.mark.parametrize("message_id", ["", "a/b", "../../x", "x" * 65, "a b", 5, b"a"])
async def test_a_message_id_must_be_a_plain_token(relay: Relay, message_id: Any) -> None:
    with pytest.raises(InvalidMessage, match="letters, digits"):
        await send(relay, message_id=message_id)


@pytest.mark.parametrize(
    "budget",
    [
        5,
        "soon",
        ["ttl"],
        {"ttl": "soon"},
        {"ttl": 1.5},
        {"ttl": -1},
        {"ttl": -(1 << 70)},
        {"ttl": 1 << 70},
        {"hop_count": -1},
        {"hop_count": 1 << 70},
        {"max_hops": 0},
        {"call_budget_remaining": -1},
        {"ancestor_chain": "agent.a"},
        {"ancestor_chain": ["not a subject"]},
        {"ancestor_chain": [f"a.{number}" for number in range(300)]},
        {"colour": "red"},
    ],
    ids=str,
)
async def test_an_invalid_budget_is_rejected(relay: Relay, budget: Any) -> None:
    with pytest.raises(InvalidMessage, match="budget"):
        await send(relay, budget=budget)


@pytest.mark.parametrize("parent", ["order-1", 5, {"budget": {}}])
async def test_a_parent_must_be_an_envelope(relay: Relay, parent: Any) -> None:
    with pytest.raises(InvalidMessage, match="parent must be an Envelope"):
        await send(relay, parent=parent)


async def test_bad_input_leaves_no_trace(relay: Relay) -> None:
    await relay.idle()
    before = relay.metrics()
    for bad in ({"payload": b"x"}, {"to": "a b"}, {"budget": 5}, {"parent": 5}, {"sender": ""}):
        with pytest.raises(InvalidInput):
            await send(relay, **bad)
    assert relay.metrics() == before


@pytest.mark.parametrize("seconds", [-1, float("inf"), float("nan"), 1e12, "5", None])
async def test_an_invalid_duration_is_rejected(relay: Relay, seconds: Any) -> None:
    result = await send(relay)
    calls: list[tuple[str, Callable[[], Any]]] = [
        ("wait", lambda: relay.lease("agent.a", wait=seconds)),
        ("delay", lambda: relay.nack("agent.a", result.message_id, delay=seconds)),
        ("timeout", lambda: relay.request("agent.a", 1, sender="agent.b", timeout=seconds)),
    ]
    for name, call in calls:
        with pytest.raises(InvalidInput, match=f"{name} must be 0 to"):
            await call()
    assert relay.metrics().by_status == {"pending": 1, "scheduled": 0, "leased": 0, "dead": 0}


@pytest.mark.parametrize("limit", ["5", 2.5, None])
async def test_a_limit_must_be_a_whole_number(relay: Relay, limit: Any) -> None:
    with pytest.raises(InvalidInput, match="limit must be"):
        await relay.lease("agent.a", limit=limit)


async def test_a_follow_up_to_a_redriven_message_is_rejected_by_its_budget(
    relay: Relay,
) -> None:
    dead = await send(relay, budget={"call_budget_remaining": 0})
    await relay.redrive(dead.message_id)
    (envelope,) = await relay.lease("agent.a")
    relay.register_endpoint("agent.c")
    result = await send(relay, to="agent.c", parent=envelope)
    assert result.rejected[0].detail == "call budget exhausted"


def test_exceptions_of_the_package_have_one_base() -> None:
    raised = [
        value
        for value in (getattr(waypost, name) for name in waypost.__all__)
        if isinstance(value, type) and issubclass(value, Exception)
    ]
    assert all(issubclass(one, WaypostError) for one in raised)
    assert len(raised) == 18


async def test_a_directory_below_a_file_cannot_be_used(tmp_path: Path) -> None:
    write(tmp_path / "file", "")
    for path in (tmp_path / "file" / "data", tmp_path / "file", Path("/dev/null/x")):
        with pytest.raises(DataDirUnusable, match="choose another"):
            await Relay(path).open()


async def test_two_relays_cannot_own_one_directory(relay: Relay, data: Path) -> None:
    with pytest.raises(DataDirInUse, match=f"pid {os.getpid()}"):
        await Relay(data).open()
    assert (await send(relay)).delivered_to == 1


OWNER = """
import asyncio, sys
from waypost import Relay

async def main():
    async with Relay(sys.argv[1]):
        print("open", flush=True)
        sys.stdin.readline()

asyncio.run(main())
"""


def other_process(data: Path) -> "subprocess.Popen[str]":
    """Run a relay in another process; it ends when it is written to."""
    source = str(Path(waypost.__file__).parents[1])
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "open\n"
    return process


@pytest.mark.process
def test_a_directory_that_another_process_owns_cannot_be_opened_until_it_is_done(
    data: Path,
) -> None:
    with other_process(data) as process:
        with pytest.raises(
            DataDirInUse, match=rf"pid {process.pid}.*stop that process, or connect"
        ):
            asyncio.run(Relay(data).open())
        process.communicate("\n")

    async def open_and_close() -> None:
        async with Relay(data, clock=ManualClock()):
            pass

    asyncio.run(open_and_close())


@pytest.mark.process
def test_a_directory_whose_owner_was_killed_can_be_opened(data: Path) -> None:
    with other_process(data) as process:
        process.kill()
        process.communicate()

    async def open_and_close() -> None:
        async with Relay(data, clock=ManualClock()):
            pass

    asyncio.run(open_and_close())


SIGNAL = Signal(
    type=SignalType.TYPING,
    state="on",
    endpoint_subject="agent.a",
    timestamp=datetime(2026, 1, 1, tzinfo=UTC),
)
CALLS: dict[str, Callable[[Relay], Any]] = {
    "publish": lambda relay: relay.publish("agent.a", 1, sender="agent.b"),
    "publish_many": lambda relay: relay.publish_many([]),
    "request": lambda relay: relay.request("agent.a", 1, sender="agent.b"),
    "lease": lambda relay: relay.lease("agent.a"),
    "peek": lambda relay: relay.peek("agent.a"),
    "schedule": lambda relay: relay.schedule.cancel("x", None),
    "cancel": lambda relay: relay.cancel("x"),
    "remember_pairs": lambda relay: relay.remember_pairs([("agent.a", "agent.b", 1)]),
    "ack": lambda relay: relay.ack("agent.a", "x"),
    "nack": lambda relay: relay.nack("agent.a", "x"),
    "extend": lambda relay: relay.extend("agent.a", "x", 1),
    "release_leases": lambda relay: relay.release_leases("agent.a"),
    "attach": lambda relay: relay.attach("agent.a", lambda: None),
    "on_waiting": lambda relay: relay.on_waiting(lambda subject: None),
    "publish_draft": lambda relay: relay.publish_draft(Draft("agent.a", 1, sender="agent.b")),
    "submit": lambda relay: relay.submit(Draft("agent.a", 1, sender="agent.b")),
    "lease_messages": lambda relay: relay.lease_messages("agent.a", 1),
    "askers": lambda relay: relay.askers.remove("agent.a", "x"),
    "claims": lambda relay: relay.claims.ack("agent.a", ["x"]),
    "share_syncs": lambda relay: relay.share_syncs(),
    "sign_journal": lambda relay: relay.sign_journal(None),
    "unconfirmed": lambda relay: relay.unconfirmed(),
    "decided": lambda relay: relay.decided(PublishResult(message_id="x", delivered_to=0)),
    "decide_forwarded": lambda relay: relay.decide_forwarded(0, []),
    "is_elsewhere": lambda relay: relay.is_elsewhere("agent.a"),
    "sync": lambda relay: relay.sync(),
    "now_us": lambda relay: relay.now_us(),
    "wait_until": lambda relay: relay.wait_until(0),
    "durable": lambda relay: relay.durable(),
    "idle": lambda relay: relay.idle(),
    "dead_letters": lambda relay: relay.dead_letters(),
    "dead_letter_groups": lambda relay: relay.dead_letter_groups(),
    "redrive": lambda relay: relay.redrive("x"),
    "purge_dead_letters": lambda relay: relay.purge_dead_letters(),
    "reset_breaker": lambda relay: relay.reset_breaker("agent.a"),
    "explain": lambda relay: relay.explain("x"),
    "rebuild_index": lambda relay: relay.rebuild_index(),
    "seal_journal": lambda relay: relay.seal_journal(),
    "subscribe": lambda relay: relay.subscribe("agent.a", print),
    "list_subscriptions": lambda relay: relay.list_subscriptions(),
    "register_endpoint": lambda relay: relay.register_endpoint("agent.a"),
    "unregister_endpoint": lambda relay: relay.unregister_endpoint("agent.a"),
    "get_endpoint": lambda relay: relay.get_endpoint("agent.a"),
    "list_endpoints": lambda relay: relay.list_endpoints(),
    "signal": lambda relay: relay.signal("agent.a", SIGNAL),
    "on_signal": lambda relay: relay.on_signal("agent.a", print),
    "metrics": lambda relay: relay.metrics(),
    "inspect": lambda relay: relay.inspect(),
    "sweep": lambda relay: relay.sweep(),
    "settings": lambda relay: relay.settings,
    "settings_file": lambda relay: relay.settings_file,
    "access": lambda relay: relay.access.add_rule(AccessRule(">", ">", "deny")),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("when", ["before it is opened", "after it is closed"])
async def test_the_error_of_a_closed_relay_names_the_way_to_open_it(
    data: Path, name: str, when: str
) -> None:
    relay = Relay(data, settings=Settings(watch_files=False), clock=ManualClock())
    if when == "after it is closed":
        async with relay:
            relay.register_endpoint("agent.a")
    with pytest.raises(RelayStopped, match=r"async with Relay\(\.\.\.\)"):
        await as_awaitable(CALLS[name](relay))


async def as_awaitable(value: Any) -> Any:
    return await value if asyncio.iscoroutine(value) else value


def test_every_public_call_of_a_relay_is_tried_while_it_is_closed() -> None:
    public = {name for name in dir(Relay) if not name.startswith("_")}
    assert public - {"open", "close", "parts", "is_decided"} == set(CALLS)
