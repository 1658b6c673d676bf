"""Names that were never used expire; used ones never do. Tokens follow the relay's own clock."""

import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.server.http.conftest import Serve
from tests.server.http.http_relay import ORIGIN, HttpRelay
from tests.server.sessions.memory_server import ServerLauncher
from waypost import AccessRule
from waypost.client.identity import Identity
from waypost.server.context import ServerContext
from waypost.testing import ManualClock

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
Use = Callable[[HttpRelay, str], Awaitable[object]]


async def log_in(served: HttpRelay, identity: Identity) -> int:
    challenge = await served.call("POST", "/v1/auth/challenge")
    answer = await served.call("POST", "/v1/auth/token", json=served.proof(identity, challenge))
    return answer.status_code


async def names(served: HttpRelay) -> dict[str, bool]:
    """Return which names are bound, and whether each is unused."""
    listed = await served.call("GET", "/v1/names", token=served.operator)
    return {one["subject"]: one["unused"] for one in listed.json()["names"]}


async def let_pass(served: HttpRelay, days: int) -> None:
    """Let days pass, and then the upkeep of names run."""
    jump(served, days)
    await served.context.names.keep_up()


def jump(served: HttpRelay, days: int) -> None:
    """Let days pass at once: timers run once, not as often as they would have."""
    served.clock.now_us += days * DAY_US
    served.clock.advance_ms(1)


async def test_a_name_that_was_never_used_expires_and_can_be_bound_again(served: HttpRelay) -> None:
    assert await log_in(served, Identity.new("agent.squatted")) == 200
    await let_pass(served, 29)
    assert await log_in(served, Identity.new("agent.squatted")) == 403
    await let_pass(served, 1)
    assert served.relay.get_endpoint("agent.squatted") is None
    assert await log_in(served, Identity.new("agent.squatted")) == 200


async def test_names_expire_without_being_asked(served: HttpRelay) -> None:
    assert await log_in(served, Identity.new("agent.squatted")) == 200
    jump(served, 31)

    async def is_free() -> bool:
        return await log_in(served, Identity.new("agent.squatted")) == 200

    await eventually(is_free, "the name to expire")


async def return_later(served: HttpRelay, subject: str) -> None:
    await served.token(subject)


async def read_inbox(served: HttpRelay, subject: str) -> None:
    await served.read(subject, token=await served.token(subject))


async def receive(served: HttpRelay, subject: str) -> None:
    await served.publish(subject, "waiting")
    await served.context.names.keep_up()  # before the message expires


async def show_card(served: HttpRelay, subject: str) -> None:
    await served.call("GET", f"/v1/endpoints/{subject}/card", token=served.operator)


async def confirm(served: HttpRelay, subject: str) -> None:
    key = served.context.authenticator.key_of(subject)
    body = {"public_key": key}
    await served.call("PUT", f"/v1/names/{subject}", token=served.operator, json=body)


async def name_in_rule(served: HttpRelay, subject: str) -> None:
    served.relay.access.add_rule(AccessRule(subject, "agent.billing", "allow"))


async def name_key_in_rule(served: HttpRelay, subject: str) -> None:
    key = served.context.authenticator.key_of(subject)
    assert key is not None
    served.relay.access.add_rule(AccessRule(">", "agent.billing", "allow", 0, key))


@pytest.mark.parametrize(
    "use",
    [
        return_later,
        read_inbox,
        receive,
        show_card,
        confirm,
        name_in_rule,
        name_key_in_rule,
    ],
)
async def test_a_name_in_use_or_named_by_others_never_expires(served: HttpRelay, use: Use) -> None:
    await served.token("agent.web")
    await use(served, "agent.web")
    await let_pass(served, 40)
    assert "agent.web" in await names(served)
    assert await log_in(served, Identity.new("agent.web")) == 403


async def test_a_message_that_waited_once_keeps_the_name(served: HttpRelay) -> None:
    await log_in(served, Identity.new("agent.web"))
    await served.publish("agent.web", "waiting", message_id="m1")
    await let_pass(served, 1)
    await served.read("agent.web", token=served.operator)
    await served.ack("agent.web", ["m1"], token=served.operator)
    await let_pass(served, 40)
    assert await names(served) == {"agent.web": False}


def write_old_file(data: Path) -> None:
    data.mkdir(mode=0o700)
    line = '{"subject":"agent.a","public_key":"key","at_ms":5,"crc":2766754402}\n'
    (data / "identities.jsonl").write_text(line)


async def test_names_of_an_earlier_version_never_expire(serve: Serve, data: Path) -> None:
    write_old_file(data)
    served = await serve()
    await let_pass(served, 400)
    assert await names(served) == {"agent.a": False}


async def test_use_is_written_once(serve: Serve, data: Path) -> None:
    served = await serve()
    await served.token("agent.used")
    await served.token("agent.used")
    await log_in(served, Identity.new("agent.unused"))
    await served.context.names.keep_up()
    lines = (data / "identities.jsonl").read_text().splitlines()
    assert ['"unused":true' in line for line in lines] == [True, True, False]
    assert await names(served) == {"agent.unused": True, "agent.used": False}


# --- Clocks that are set back --------------------------------------------------------------------


async def test_a_token_does_not_live_longer_when_the_clock_is_set_back(served: HttpRelay) -> None:
    token = await served.token("agent.web")
    served.clock.now_us -= HOUR_US
    assert (await served.call("GET", "/v1/inbox/agent.web", token=token)).status_code == 200
    served.clock.advance_ms(15 * 60_000 + 1)
    assert (await served.call("GET", "/v1/inbox/agent.web", token=token)).status_code == 401


async def test_a_challenge_does_not_live_longer_when_the_clock_is_set_back(
    served: HttpRelay,
) -> None:
    challenge = await served.call("POST", "/v1/auth/challenge")
    served.clock.now_us -= HOUR_US
    await served.call("POST", "/v1/auth/challenge")  # reads the clock, as every second does
    served.clock.advance_ms(60_001)
    body = served.proof(Identity.new("agent.web"), challenge)
    assert (await served.call("POST", "/v1/auth/token", json=body)).status_code == 401


async def test_a_token_does_not_live_longer_after_a_restart_with_a_clock_set_back(
    launcher: ServerLauncher, clock: ManualClock
) -> None:
    web = Identity.new("agent.web")
    server = await launcher.open()
    first = prove(server.context, web)
    server.context.mailboxes.open_for("agent.web")  # the newest event in the journal
    clock.advance_ms(60_000)
    second = prove(server.context, web)
    clock.now_us -= HOUR_US
    authenticator = (await launcher.open()).context.authenticator
    # Time goes on from the newest event, which is the signature of the journal at its close.
    assert authenticator.subject_of_token(first) == "agent.web"
    assert authenticator.subject_of_token(second) == "agent.web"
    clock.advance_ms(14 * 60_000 + 1)
    assert authenticator.subject_of_token(first) is None
    assert authenticator.subject_of_token(second) == "agent.web"
    clock.advance_ms(60_000)
    assert authenticator.subject_of_token(second) is None


async def test_a_token_does_not_live_longer_after_a_crash_with_a_clock_set_back(
    launcher: ServerLauncher, clock: ManualClock, tmp_path: Path
) -> None:
    web = Identity.new("agent.web")
    server = await launcher.open()
    first = prove(server.context, web)
    server.context.mailboxes.open_for("agent.web")
    await server.context.relay.publish("agent.web", None, sender="agent.web")  # the newest event
    clock.advance_ms(60_000)
    second = prove(server.context, web)
    left_by_crash = tmp_path / "left-by-crash"  # without the signature of an orderly close
    shutil.copytree(launcher.data, left_by_crash)
    clock.now_us -= HOUR_US
    restarted = ServerLauncher(left_by_crash, clock)
    authenticator = (await restarted.open()).context.authenticator
    assert authenticator.subject_of_token(first) == "agent.web"
    assert authenticator.subject_of_token(second) is None  # it was issued in the future
    clock.advance_ms(15 * 60_000 + 1)
    assert authenticator.subject_of_token(first) is None
    await restarted.close()


def prove(context: ServerContext, identity: Identity) -> str:
    nonce = context.authenticator.challenge()
    proof = identity.prove(nonce, ORIGIN)
    return context.authenticator.authenticate(
        subject=proof.subject,
        public_key=proof.public_key,
        signature=proof.signature,
        nonce=nonce,
        origins=[ORIGIN],
    ).token
