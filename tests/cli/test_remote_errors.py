"""Errors at a served relay: one sentence each, with a hint."""

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.serve_process import ServeProcess, User, serving

pytestmark = pytest.mark.process

LIMITS = {
    "reliability": {
        "rateLimit": {"perSenderOverrides": {"agent.f.fast": 1}},
        "backpressure": {"maxMailboxSize": 3},
    },
    "qos": {"tier1": {"maxEnvelopes": 2}},
}


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServeProcess]:
    home = tmp_path_factory.mktemp("served")
    data = home / "data"
    data.mkdir(mode=0o700)
    (data / "config.json").write_text(json.dumps(LIMITS))
    with serving(home, "--no-anonymous", data=data) as running:
        yield running


@pytest.fixture
def user(relay: ServeProcess, tmp_path: Path) -> User:
    return User(relay.url, tmp_path)


def error_line(result: Any) -> str:
    """Return stderr, which must be one line, with nothing on stdout."""
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    output: str = result.stderr
    assert output.startswith("waypost: ")
    return output


COMMANDS = [
    ("send", "agent.a", "1"),
    ("endpoints",),
    ("stats",),
    ("dead-letters", "list"),
    ("dead-letters", "list", "--group"),
    ("dead-letters", "redrive", "--all"),
    ("dead-letters", "purge", "--yes"),
    ("config", "check"),
    ("config", "show"),
    ("explain", "some-id"),
    ("inbox", "agent.a"),
]


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_an_unreachable_relay_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    offline = User("http://127.0.0.1:9", tmp_path, WAYPOST_OPERATOR_TOKEN="secret")
    output = error_line(offline(*arguments, exits=1))
    assert "no relay answers at http://127.0.0.1:9" in output
    assert "'waypost serve'" in output
    assert "--url" in output


@pytest.mark.parametrize(
    "arguments", [("listen", "agent.a"), ("request", "agent.b", "1", "--sender", "agent.a")]
)
def test_an_unreachable_relay_is_reported_to_agents_at_once(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    offline = User("http://127.0.0.1:9", tmp_path)
    offline.create_keys("agent.a")
    assert "no relay answers" in error_line(offline(*arguments, exits=1))


def test_an_invalid_url_is_an_input_error(tmp_path: Path) -> None:
    output = error_line(User("localhost:7171", tmp_path)("stats", exits=2))
    assert "expected http://HOST:PORT" in output


class NotARelay(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"<h1>Not Found</h1>")

    def log_message(self, *_: object) -> None:
        pass


def test_another_server_at_the_url_is_one_sentence(tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), NotARelay) as other:
        threading.Thread(target=other.handle_request).start()
        url = f"http://127.0.0.1:{other.server_port}"
        user = User(url, tmp_path, WAYPOST_OPERATOR_TOKEN="secret")
        output = error_line(user("stats", exits=1))
    assert f"{url} is not a relay (HTTP status 404): check --url" in output


def test_https_to_a_server_without_tls_is_one_sentence(relay: ServeProcess, tmp_path: Path) -> None:
    user = User(relay.url.replace("http:", "https:"), tmp_path, WAYPOST_OPERATOR_TOKEN="x")
    assert "is it http:// instead of https://?" in error_line(user("stats", exits=1))


def test_operator_commands_name_the_missing_token(user: User) -> None:
    output = error_line(user("stats", exits=1))
    assert "--operator-token-file" in output
    assert "WAYPOST_OPERATOR_TOKEN_FILE" in output


def test_a_wrong_token_is_an_error_with_a_hint(relay: ServeProcess, tmp_path: Path) -> None:
    user = User(relay.url, tmp_path, WAYPOST_OPERATOR_TOKEN="wrong")
    output = error_line(user("stats", exits=1))
    assert "rejected this operator's token" in output
    assert "file operator-token of its data directory" in output


@pytest.mark.parametrize("content", ["", "two words", None])
def test_a_file_without_a_token_is_one_sentence(
    relay: ServeProcess, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.touch(mode=0o600)
        file.write_text(content)
    user = User(relay.url, tmp_path)
    output = error_line(user("stats", "--operator-token-file", str(file), exits=1))
    assert str(file) in output


def test_a_token_file_that_others_can_read_or_that_is_a_pipe_is_rejected(
    relay: ServeProcess, tmp_path: Path
) -> None:
    user, file, pipe = User(relay.url, tmp_path), tmp_path / "token", tmp_path / "pipe"
    file.write_bytes(Path(relay.operator_token_file).read_bytes())
    file.chmod(0o644)
    output = error_line(user("stats", "--operator-token-file", str(file), exits=1))
    assert f"chmod 600 {file}" in output
    os.mkfifo(pipe, 0o600)
    output = error_line(user("stats", "--operator-token-file", str(pipe), exits=1))
    assert "not a regular file" in output


def test_a_token_may_be_set_in_the_environment(relay: ServeProcess, tmp_path: Path) -> None:
    token = Path(relay.operator_token_file).read_text()
    user = User(relay.url, tmp_path, WAYPOST_OPERATOR_TOKEN=token)
    assert user.json("stats")["url"] == relay.url


def test_rejected_anonymous_messages_come_with_a_hint(user: User) -> None:
    output = error_line(user("send", "agent.a", "1", exits=1))
    assert "accepts no anonymous messages" in output
    assert "'waypost keys new SUBJECT'" in output


def test_missing_keys_come_with_a_hint(user: User) -> None:
    for arguments in (
        ("send", "agent.a", "1", "--sender", "agent.f.new"),
        ("listen", "agent.f.new"),
    ):
        output = error_line(user(*arguments, exits=1))
        assert "'waypost keys new agent.f.new'" in output
        assert "--key" in output


def test_keys_of_another_agent_are_an_input_error(user: User) -> None:
    user.create_keys("agent.f.one")
    key = ("--key", str(user.key_of("agent.f.one")))
    for arguments in (
        ("listen", "agent.f.two"),
        ("send", "agent.a", "1", "--sender", "agent.f.two"),
    ):
        output = error_line(user(*arguments, *key, exits=2))
        assert "holds the keys of agent.f.one, not of agent.f.two" in output


def test_a_taken_subject_is_an_error_with_a_hint(
    relay: ServeProcess, user: User, tmp_path: Path
) -> None:
    user.create_keys("agent.f.taken")
    user("send", "agent.f.x", "1", "--sender", "agent.f.taken")
    impostor = User(relay.url, tmp_path / "thief")
    impostor.create_keys("agent.f.taken")
    for arguments in (
        ("send", "agent.f.x", "1", "--sender", "agent.f.taken"),
        ("send", "agent.f.x", "1", "--sender", "agent.f.taken", "--wait", "1"),
        ("listen", "agent.f.taken"),
        ("inbox", "agent.f.taken"),
    ):
        output = error_line(impostor(*arguments, exits=1))
        assert "agent.f.taken belongs to another key" in output
        assert "--key" in output


def test_a_second_connection_of_an_agent_is_an_error_with_a_hint(user: User) -> None:
    user.create_keys("agent.f.here", "agent.f.sender")
    first = user.start_command("listen", "agent.f.here")
    assert first.stderr is not None
    assert "listening as" in first.stderr.readline()
    for arguments in (
        ("listen", "agent.f.here"),
        ("request", "agent.x", "1", "--sender", "agent.f.here"),
    ):
        output = error_line(user(*arguments, exits=1))
        assert "agent.f.here is already connected" in output
        assert "close the other one first" in output
    waiting = ("send", "agent.x", "1", "--sender", "agent.f.here", "--wait", "1")
    assert "send without --wait" in error_line(user(*waiting, exits=1))
    assert user.json("inbox", "agent.f.here")["messages"] == []
    inbox = error_line(user("inbox", "agent.f.here", "--ack", exits=1))
    assert "agent.f.here is connected: its messages are delivered there" in inbox
    user("send", "agent.f.here", "1", "--sender", "agent.f.sender", "--id", "still")
    assert first.stdout is not None
    assert "still" in first.stdout.readline()
    first.terminate()
    first.communicate(timeout=60)


def test_another_agents_inbox_is_rejected_with_a_hint(relay: ServeProcess, user: User) -> None:
    user.create_keys("agent.f.curious")
    assert "'waypost keys new agent.f.x'" in error_line(user("inbox", "agent.f.x", exits=1))
    output = error_line(relay.operator()("inbox", "agent.f.unheard", exits=1))
    assert "endpoint agent.f.unheard is not registered" in output


def test_an_unknown_id_is_one_sentence(relay: ServeProcess) -> None:
    output = error_line(relay.operator()("explain", "unheard-of", exits=1))
    assert "no message unheard-of at" in output


def test_a_quota_is_a_rejection_with_advice(user: User) -> None:
    user.create_keys("agent.f.pushy")
    send = ("send", "agent.f.quota", "1", "--sender", "agent.f.pushy")
    for _ in range(2):
        user(*send)
    result = user(*send, exits=3)
    assert "rejected by agent.f.quota: quota_exceeded" in result.stdout
    assert "wait until the recipient has read" in result.stdout
    [rejection] = user.json(*send, "--wait", "1", exits=3)["rejected"]
    assert rejection["reason"] == "quota_exceeded"


def test_a_rate_limited_send_reports_the_retry_time(user: User) -> None:
    user.create_keys("agent.f.fast")
    user("send", "agent.f.r", "1", "--sender", "agent.f.fast")
    result = user("send", "agent.f.r", "1", "--sender", "agent.f.fast", exits=3)
    assert "rejected: rate_limited" in result.stdout
    assert "send again in" in result.stdout
    sent = user.json("send", "agent.f.r", "1", "--sender", "agent.f.fast", exits=3)
    assert 0 < sent["retry_after_ms"] <= 60_000


def test_a_full_mailbox_does_not_reveal_its_size(user: User) -> None:
    senders = ["agent.f.m1", "agent.f.m2"]
    user.create_keys(*senders)
    for sender in (*senders, senders[0]):
        user("send", "agent.f.full", "1", "--sender", sender)
    result = user("send", "agent.f.full", "1", "--sender", senders[1], exits=3)
    assert "backpressure (queue full" in result.stdout
    assert "3/3" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("send", "agent..a", "1"), "invalid"),
        (("send", "_relay", "1", "--sender", "_operator"), "belong to the relay"),
        (("send", "agent.a", "1", "--id", "a/b"), "invalid message id"),
        (("explain", "a/b"), "invalid message id"),
        (("inbox", "agent.*"), "wildcard"),
    ],
)
def test_bad_input_exits_with_2(
    relay: ServeProcess, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in error_line(relay.operator()(*arguments, exits=2))
