"""`send`, `inbox`, `explain`, `listen` and `request` at a served relay."""

import asyncio
import json
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pytest

from tests.cli.serve_process import ServeProcess, User, serving
from waypost.cli.backend import open_backend
from waypost.cli.options import RelayChoice
from waypost.client import Identity, ReceiveTimedOut, blocking, connect

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    with serving(tmp_path_factory.mktemp("served"), "--batch", "3") as running:
        yield running


@pytest.fixture
def user(relay: ServeProcess, tmp_path: Path) -> User:
    """A user with a new home directory."""
    return User(relay.url, tmp_path)


def line_of(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def start_listening(user: User, *arguments: str) -> "subprocess.Popen[str]":
    """Start `waypost listen` and wait until it is connected."""
    started = user.start_command("listen", *arguments)
    output = line_of(started.stderr)
    assert "listening as" in output, output + started.communicate(timeout=60)[1]
    return started


def test_an_offline_agent_gets_stored_messages_later_and_the_sender_sees_was_stored(
    user: User,
) -> None:
    user.create_keys("agent.s1.web", "agent.s1.billing")
    sent = user.json("send", "agent.s1.billing", '{"refund": 12}', "--sender", "agent.s1.web")
    assert (sent["delivered_to"], sent["was_stored"]) == (1, None)
    received = user.json("listen", "agent.s1.billing", "--count", "1")
    assert (received["id"], received["payload"]) == (sent["message_id"], {"refund": 12})
    assert (received["sender"], received["was_stored"]) == ("agent.s1.web", True)
    output = user.json("listen", "agent.s1.web", "--seconds", "1")
    assert output == {
        "message_id": sent["message_id"],
        "recipient": "agent.s1.billing",
        "was_stored": True,
    }
    assert user("listen", "agent.s1.billing", "--seconds", "0.2").stdout == ""


def wait_for_messages(relay: ServeProcess, subject: str) -> None:
    for _ in range(1000):
        found = relay.operator().json("endpoints")["endpoints"]
        if any(one["subject"] == subject and one["pending"] for one in found):
            return
    pytest.fail(f"no message for {subject}")


def test_wait_reports_that_the_message_was_stored(relay: ServeProcess, user: User) -> None:
    user.create_keys("agent.s2.web", "agent.s2.billing")
    send = ("send", "agent.s2.billing", "1", "--sender", "agent.s2.web", "--wait", "60")
    sender = user.start_command(*send)
    wait_for_messages(relay, "agent.s2.billing")
    received = user.json("listen", "agent.s2.billing", "--count", "1")
    output, problems = sender.communicate(timeout=60)
    assert sender.returncode == 0, problems
    delivered, confirmed = output.splitlines()
    assert delivered == f"{received['id']}: delivered to agent.s2.billing"
    assert confirmed.startswith(
        f"{received['id']}: confirmed by agent.s2.billing (stored until it connected)"
    )


def test_a_connected_recipient_confirms_without_storing(user: User) -> None:
    user.create_keys("agent.s3.web", "agent.s3.billing")
    listener = start_listening(user, "agent.s3.billing", "--count", "1")
    send = ("send", "agent.s3.billing", "1", "--sender", "agent.s3.web", "--wait", "30")
    sent = user.json(*send)
    assert (sent["confirmed_by"], sent["was_stored"]) == ("agent.s3.billing", False)
    output, _ = listener.communicate(timeout=60)
    assert output == f"{sent['message_id']}  from agent.s3.web  1\n"
    assert listener.returncode == 0


def test_a_timed_out_wait_explains_what_follows(user: User) -> None:
    user.create_keys("agent.s4.web")
    send = ("send", "agent.s4.gone", "1", "--sender", "agent.s4.web", "--wait", "0.1")
    result = user(*send, "--id", "s4")
    assert "s4: delivered to agent.s4.gone" in result.stdout
    assert "Not confirmed within 0.1 s: the message is stored" in result.stdout


def test_a_time_to_live_that_is_cut_is_shown_with_and_without_waiting(user: User) -> None:
    user.create_keys("agent.late.web")
    send = (
        "send",
        "agent.late.late",
        "1",
        "--sender",
        "agent.late.web",
        "--expires-in",
        "9999999w",
    )
    for wait in ((), ("--wait", "0.1")):
        output = user(*send, *wait).stdout
        assert "The relay cut the requested budget: expires in 167 h 59 min" in output


def test_without_keys_a_message_is_anonymous(user: User) -> None:
    user.create_keys("agent.s5")
    user("send", "agent.s5", "hello", "--id", "s5")
    [message] = user.json("inbox", "agent.s5")["messages"]
    assert (message["id"], message["sender"]) == ("s5", "_anonymous")


def test_a_named_key_file_sets_the_sender(user: User, tmp_path: Path) -> None:
    user.create_keys("agent.s6")
    key = tmp_path / "elsewhere.key"
    user("keys", "new", "agent.s6.sender", "--out", str(key))
    user("send", "agent.s6", "hello", "--key", str(key))
    [message] = user.json("inbox", "agent.s6")["messages"]
    assert message["sender"] == "agent.s6.sender"


def test_showing_an_inbox_leaves_it_unchanged(relay: ServeProcess, user: User) -> None:
    user.create_keys("agent.s7")
    for number in range(3):
        user("send", "agent.s7", str(number))
    text = user("inbox", "agent.s7", "--limit", "2").stdout
    assert "agent.s7: 2 of 3 pending messages." in text
    seen = relay.operator().json("inbox", "agent.s7")
    assert [one["payload"] for one in seen["messages"]] == [0, 1, 2]
    assert (seen["pending"], seen["leased"], seen["acknowledged"]) == (3, 0, False)


def test_showing_an_inbox_is_no_delivery(relay: ServeProcess, user: User) -> None:
    user.create_keys("agent.s24")
    sent = user.json("send", "agent.s24", "shown")["message_id"]
    seen = user.json("inbox", "agent.s24")
    assert (seen["pending"], seen["leased"]) == (1, 0)
    assert "delivered" not in relay.operator()("explain", sent).stdout


def test_acknowledged_messages_are_removed(relay: ServeProcess, user: User) -> None:
    user.create_keys("agent.s8")
    for number in range(3):
        user("send", "agent.s8", str(number))
    taken = user.json("inbox", "agent.s8", "--ack", "--limit", "2")
    assert [one["payload"] for one in taken["messages"]] == [0, 1]
    assert taken["acknowledged"] is True
    left = relay.operator().json("inbox", "agent.s8", "--ack")
    assert [one["payload"] for one in left["messages"]] == [2]
    assert (left["pending"], left["leased"]) == (0, 0)


def test_messages_that_were_not_shown_are_not_acknowledged(relay: ServeProcess, user: User) -> None:
    user.create_keys("agent.s22")
    user("send", "agent.s22", "kept")
    choice = RelayChoice(url=relay.url, key=user.key_of("agent.s22"))

    def broken(_: object) -> None:
        raise BrokenPipeError

    with choice.closing, pytest.raises(BrokenPipeError):
        open_backend(choice).consume("agent.s22", 10, None, broken)
    assert [one["payload"] for one in user.json("inbox", "agent.s22")["messages"]] == ["kept"]


def test_large_messages_can_be_skipped(user: User) -> None:
    user.create_keys("agent.s9")
    user("send", "agent.s9", "x" * 5000)
    user("send", "agent.s9", "small")
    seen = user.json("inbox", "agent.s9", "--max-size", "1000")
    assert [one["payload"] for one in seen["messages"]] == ["small"]


def test_the_operator_sees_every_history_and_a_sender_its_own(
    relay: ServeProcess, user: User
) -> None:
    user.create_keys("agent.s10", "agent.s10.other")
    user("send", "agent.s10.x", "1", "--sender", "agent.s10", "--id", "s10")
    assert "rate limit passed" in relay.operator()("explain", "s10").stdout
    own = user("explain", "s10", "--key", str(user.key_of("agent.s10"))).stdout
    assert "stored" in own
    assert "rate limit" not in own
    other = user("explain", "s10", "--key", str(user.key_of("agent.s10.other")), exits=1)
    assert "no message s10 at" in other.stderr


def test_registering_outside_of_agent_needs_the_operator(relay: ServeProcess, user: User) -> None:
    assert "No endpoint matches" in user("send", "service.s11", "1", exits=3).stdout
    rejected = user("send", "service.s11", "1", "--register", exits=1)
    assert "--operator-token-file" in rejected.stderr
    sent = relay.operator().json("send", "service.s11", "1", "--register")
    assert sent["delivered_to"] == 1


def test_registering_under_agent_needs_no_token(user: User) -> None:
    assert user.json("send", "agent.s12", "1", "--register")["delivered_to"] == 1


def test_unacknowledged_messages_are_pending_again(user: User) -> None:
    user.create_keys("agent.s13")
    for number in range(5):  # more than the relay delivers before an acknowledgement
        user("send", "agent.s13", str(number))
    seen = _lines(user("listen", "agent.s13", "--no-ack", "--count", "5", "--json").stdout)
    assert [one["payload"] for one in seen] == list(range(5))
    again = user.json("listen", "agent.s13", "--count", "1")
    assert again["payload"] == 0


def test_showing_messages_is_not_a_failed_delivery(relay: ServeProcess, user: User) -> None:
    user.create_keys("agent.s23")
    sent = user.json("send", "agent.s23", "shown")["message_id"]
    user("listen", "agent.s23", "--no-ack", "--count", "1")
    user("inbox", "agent.s23")
    user.json("inbox", "agent.s23")
    history = relay.operator()("explain", sent).stdout
    assert "attempt 1" in history
    assert "attempt 2" not in history


def test_stored_messages_arrive_in_batches_of_the_given_size(
    relay: ServeProcess, user: User
) -> None:
    user.create_keys("agent.s20")
    for number in range(4):
        user("send", "agent.s20", str(number))

    async def act() -> None:
        async with connect(relay.url, Identity.load(user.key_of("agent.s20"))) as agent:
            batch = [await agent.receive(timeout=60) for _ in range(3)]
            with pytest.raises(ReceiveTimedOut):
                await agent.receive(timeout=0.2)
            for message in batch:
                await message.ack()
            assert (await agent.receive(timeout=60)).payload == 3

    asyncio.run(act())


def _lines(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_listening_cleanly(user: User, how: signal.Signals) -> None:
    name = f"agent.s14.{how.name}"
    user.create_keys(name)
    listener = start_listening(user, name, "--json")
    user("send", name, '"before"')
    assert json.loads(line_of(listener.stdout))["payload"] == "before"
    listener.send_signal(how)
    assert listener.communicate(timeout=60) == ("", "")
    assert listener.returncode == 0
    assert user.json("inbox", name)["messages"] == []


def test_listeners_that_share_a_mailbox_get_one_message_each(user: User) -> None:
    user.create_keys("agent.s30")
    listeners = [start_listening(user, "agent.s30", "--shared", "--json") for _ in range(2)]
    payloads = []
    for number, listener in enumerate(listeners):  # the one that has waited longest is next
        user("send", "agent.s30", str(number))
        payloads.append(json.loads(line_of(listener.stdout))["payload"])
    assert payloads == [0, 1]
    for listener in listeners:
        listener.terminate()
        assert listener.communicate(timeout=60) == ("", "")


def test_an_unprinted_message_is_pending_again(user: User) -> None:
    user.create_keys("agent.s15")
    listener = start_listening(user, "agent.s15")
    assert listener.stdout is not None
    listener.stdout.close()
    user("send", "agent.s15", "kept")
    listener.wait(timeout=60)
    assert listener.stderr is not None
    assert "Traceback" not in listener.stderr.read()
    listener.stderr.close()
    assert [one["payload"] for one in user.json("inbox", "agent.s15")["messages"]] == ["kept"]


def test_too_few_messages_in_time_exit_with_1(user: User) -> None:
    user.create_keys("agent.s16")
    user("send", "agent.s16", "1")
    result = user("listen", "agent.s16", "--count", "2", "--seconds", "0.3", exits=1)
    assert "received 1 of 2 messages within 0.3 s" in result.stderr
    assert len(result.stdout.splitlines()) == 1


def answer_one(relay: ServeProcess, key: Path, connected: threading.Event) -> None:
    """Answer one request with the sum of its numbers."""

    async def act() -> None:
        async with connect(relay.url, Identity.load(key)) as agent:
            connected.set()
            message = await agent.receive(timeout=60)
            await message.ack()
            await message.reply({"total": sum(message.payload["numbers"])})

    asyncio.run(act())


@pytest.mark.parametrize("stored", [0, 3])
def test_a_request_prints_its_reply_whatever_else_is_stored(
    relay: ServeProcess, user: User, stored: int
) -> None:
    asker, asked = f"agent.s17.web{stored}", f"agent.s17.sum{stored}"
    user.create_keys(asker, asked)
    for number in range(stored):
        user("send", asker, str(number))
    connected = threading.Event()
    answering = threading.Thread(target=answer_one, args=(relay, user.key_of(asked), connected))
    answering.start()
    assert connected.wait(60)
    result = user("request", asked, '{"numbers": [1, 2]}', "--sender", asker)
    answering.join(60)
    assert result.stdout == '{"total":3}\n'
    left = relay.operator().json("endpoints")["endpoints"]
    assert [one["pending"] for one in left if one["subject"] == asker] == [stored]


def test_a_request_whose_recipient_fails_prints_the_error_at_once(
    relay: ServeProcess, user: User
) -> None:
    user.create_keys("agent.s22.web", "agent.s22.sum")
    connected = threading.Event()

    def fail_one() -> None:
        with blocking.connect(relay.url, Identity.load(user.key_of("agent.s22.sum"))) as agent:
            connected.set()
            agent.receive(60).nack(error="no numbers")

    failing = threading.Thread(target=fail_one)
    failing.start()
    assert connected.wait(60)
    request = ("request", "agent.s22.sum", "1", "--sender", "agent.s22.web", "--timeout", "300")
    result = user(*request, exits=1)
    failing.join(60)
    assert result.stderr == "waypost: agent.s22.sum failed: no numbers\n"
    assert result.stdout == ""


def test_stored_confirmations_are_not_lost_to_other_commands(user: User) -> None:
    user.create_keys("agent.s21.web", "agent.s21.billing")
    for name in ("s21-a", "s21-b"):
        user("send", "agent.s21.billing", "1", "--sender", "agent.s21.web", "--id", name)
    user("listen", "agent.s21.billing", "--count", "1")
    user("send", "agent.s21.x", "1", "--sender", "agent.s21.web", "--wait", "0.2")
    output = user.json("listen", "agent.s21.web", "--seconds", "0.5")
    assert (output["message_id"], output["was_stored"]) == ("s21-a", True)
    user("listen", "agent.s21.billing", "--count", "1")
    asking = ("request", "agent.s21.x", "1", "--sender", "agent.s21.web", "--timeout", "0.5")
    asked = user(*asking, exits=1)
    assert asked.stdout == ""
    assert "s21-b: confirmed by agent.s21.billing (stored until it connected)" in asked.stderr


def test_a_request_without_a_reply_is_one_sentence(user: User) -> None:
    user.create_keys("agent.s18")
    request = ("request", "agent.s18.absent", "1", "--sender", "agent.s18", "--timeout", "0.2")
    result = user(*request, exits=1)
    assert result.stderr == "waypost: no reply from agent.s18.absent within 0.2 s\n"
    assert result.stdout == ""


def test_a_request_without_an_endpoint_exits_with_3(user: User) -> None:
    user.create_keys("agent.s19")
    result = user("request", "service.s19", "1", "--sender", "agent.s19", exits=3)
    assert "No endpoint matches service.s19" in result.stdout
