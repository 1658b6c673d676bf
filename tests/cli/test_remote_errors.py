"""Whatever goes wrong with a served relay, a person is told what to do about it."""

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.served import Person, ServedRelay, serving

pytestmark = pytest.mark.process

LIMITS = {
    "reliability": {
        "rateLimit": {"perSenderOverrides": {"agent.f.fast": 1}},
        "backpressure": {"maxMailboxSize": 3},
    },
    "qos": {"tier1": {"maxEnvelopes": 2}},
}


@pytest.fixture(scope="module")
def relay(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedRelay]:
    home = tmp_path_factory.mktemp("served")
    data = home / "data"
    data.mkdir(mode=0o700)
    (data / "config.json").write_text(json.dumps(LIMITS))
    with serving(home, "--no-anonymous", data=data) as running:
        yield running


@pytest.fixture
def person(relay: ServedRelay, tmp_path: Path) -> Person:
    return Person(relay.url, tmp_path)


def one_sentence(result: Any) -> str:
    """What was said on stderr, which is one line, with nothing on stdout."""
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1
    said: str = result.stderr
    assert said.startswith("waypost: ")
    return said


VERBS = [
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


@pytest.mark.parametrize("arguments", VERBS, ids=" ".join)
def test_a_relay_that_is_away_is_one_sentence(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    nobody = Person("http://127.0.0.1:9", tmp_path, WAYPOST_OPERATOR_TOKEN="secret")
    said = one_sentence(nobody(*arguments, exits=1))
    assert "no relay answers at http://127.0.0.1:9" in said
    assert "'waypost serve'" in said
    assert "--url" in said


@pytest.mark.parametrize(
    "arguments", [("listen", "agent.a"), ("request", "agent.b", "1", "--sender", "agent.a")]
)
def test_an_agent_is_told_at_once_that_the_relay_is_away(
    tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    nobody = Person("http://127.0.0.1:9", tmp_path)
    nobody.has_keys("agent.a")
    assert "no relay answers" in one_sentence(nobody(*arguments, exits=1))


def test_what_is_no_url_is_an_input_error(tmp_path: Path) -> None:
    said = one_sentence(Person("localhost:7171", tmp_path)("stats", exits=2))
    assert "expected http://HOST:PORT" in said


class NotARelay(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(404)
        self.end_headers()
        self.wfile.write(b"<h1>Not Found</h1>")

    def log_message(self, *_: object) -> None:
        pass


def test_something_else_that_answers_is_one_sentence(tmp_path: Path) -> None:
    with http.server.HTTPServer(("127.0.0.1", 0), NotARelay) as other:
        threading.Thread(target=other.handle_request).start()
        url = f"http://127.0.0.1:{other.server_port}"
        person = Person(url, tmp_path, WAYPOST_OPERATOR_TOKEN="secret")
        said = one_sentence(person("stats", exits=1))
    assert f"{url} is not a relay (HTTP status 404): check --url" in said


def test_tls_where_there_is_none_is_one_sentence(relay: ServedRelay, tmp_path: Path) -> None:
    person = Person(relay.url.replace("http:", "https:"), tmp_path, WAYPOST_OPERATOR_TOKEN="x")
    assert "is it http:// instead of https://?" in one_sentence(person("stats", exits=1))


def test_the_operators_verbs_say_which_token_they_need(person: Person) -> None:
    said = one_sentence(person("stats", exits=1))
    assert "--operator-token-file" in said
    assert "WAYPOST_OPERATOR_TOKEN_FILE" in said


def test_a_wrong_token_is_told_where_the_right_one_is(relay: ServedRelay, tmp_path: Path) -> None:
    person = Person(relay.url, tmp_path, WAYPOST_OPERATOR_TOKEN="wrong")
    said = one_sentence(person("stats", exits=1))
    assert "rejected this operator's token" in said
    assert "file operator-token of its data directory" in said


@pytest.mark.parametrize("content", ["", "two words", None])
def test_a_token_file_that_holds_none_is_one_sentence(
    relay: ServedRelay, tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    person = Person(relay.url, tmp_path)
    said = one_sentence(person("stats", "--operator-token-file", str(file), exits=1))
    assert str(file) in said


def test_a_token_may_stand_in_the_environment(relay: ServedRelay, tmp_path: Path) -> None:
    token = Path(relay.operator_token_file).read_text()
    person = Person(relay.url, tmp_path, WAYPOST_OPERATOR_TOKEN=token)
    assert person.json("stats")["url"] == relay.url


def test_anonymous_messages_are_rejected_with_how_to_be_somebody(person: Person) -> None:
    said = one_sentence(person("send", "agent.a", "1", exits=1))
    assert "accepts no anonymous messages" in said
    assert "'waypost keys new SUBJECT'" in said


def test_a_sender_without_keys_is_told_how_to_make_them(person: Person) -> None:
    for arguments in (
        ("send", "agent.a", "1", "--sender", "agent.f.new"),
        ("listen", "agent.f.new"),
    ):
        said = one_sentence(person(*arguments, exits=1))
        assert "'waypost keys new agent.f.new'" in said
        assert "--key" in said


def test_keys_of_somebody_else_are_an_input_error(person: Person) -> None:
    person.has_keys("agent.f.one")
    key = ("--key", str(person.key_of("agent.f.one")))
    for arguments in (
        ("listen", "agent.f.two"),
        ("send", "agent.a", "1", "--sender", "agent.f.two"),
    ):
        said = one_sentence(person(*arguments, *key, exits=2))
        assert "holds the keys of agent.f.one, not of agent.f.two" in said


def test_a_subject_of_another_key_says_which_file_to_use(
    relay: ServedRelay, person: Person, tmp_path: Path
) -> None:
    person.has_keys("agent.f.taken")
    person("send", "agent.f.x", "1", "--sender", "agent.f.taken")
    thief = Person(relay.url, tmp_path / "thief")
    thief.has_keys("agent.f.taken")
    for arguments in (
        ("send", "agent.f.x", "1", "--sender", "agent.f.taken"),
        ("send", "agent.f.x", "1", "--sender", "agent.f.taken", "--wait", "1"),
        ("listen", "agent.f.taken"),
        ("inbox", "agent.f.taken"),
    ):
        said = one_sentence(thief(*arguments, exits=1))
        assert "agent.f.taken belongs to another key" in said
        assert "--key" in said


def test_whoever_is_connected_already_is_told_to_end_the_other(person: Person) -> None:
    person.has_keys("agent.f.here", "agent.f.sender")
    first = person.starts("listen", "agent.f.here")
    assert first.stderr is not None
    assert "listening as" in first.stderr.readline()
    for arguments in (
        ("listen", "agent.f.here"),
        ("request", "agent.x", "1", "--sender", "agent.f.here"),
    ):
        said = one_sentence(person(*arguments, exits=1))
        assert "agent.f.here is already connected" in said
        assert "close the other one first" in said
    waiting = ("send", "agent.x", "1", "--sender", "agent.f.here", "--wait", "1")
    assert "send without --wait" in one_sentence(person(*waiting, exits=1))
    inbox = one_sentence(person("inbox", "agent.f.here", exits=1))
    assert "agent.f.here is already connected: its messages go there" in inbox
    person("send", "agent.f.here", "1", "--sender", "agent.f.sender", "--id", "still")
    assert first.stdout is not None
    assert "still" in first.stdout.readline()
    first.terminate()
    first.communicate(timeout=30)


def test_an_inbox_of_somebody_else_is_rejected_with_what_is_needed(
    relay: ServedRelay, person: Person
) -> None:
    person.has_keys("agent.f.curious")
    assert "'waypost keys new agent.f.x'" in one_sentence(person("inbox", "agent.f.x", exits=1))
    said = one_sentence(relay.operator()("inbox", "agent.f.unheard", exits=1))
    assert "endpoint agent.f.unheard is not registered" in said


def test_an_unknown_id_is_one_sentence(relay: ServedRelay) -> None:
    said = one_sentence(relay.operator()("explain", "unheard-of", exits=1))
    assert "no message unheard-of at" in said


def test_a_quota_is_a_rejection_with_advice(person: Person) -> None:
    person.has_keys("agent.f.pushy")
    send = ("send", "agent.f.quota", "1", "--sender", "agent.f.pushy")
    for _ in range(2):
        person(*send)
    result = person(*send, exits=3)
    assert "rejected by agent.f.quota: quota_exceeded" in result.stdout
    assert "wait until the recipient has read" in result.stdout
    [rejection] = person.json(*send, "--wait", "1", exits=3)["rejected"]
    assert rejection["reason"] == "quota_exceeded"


def test_a_rate_limit_says_how_long_to_wait(person: Person) -> None:
    person.has_keys("agent.f.fast")
    person("send", "agent.f.r", "1", "--sender", "agent.f.fast")
    result = person("send", "agent.f.r", "1", "--sender", "agent.f.fast", exits=3)
    assert "rejected: rate_limited" in result.stdout
    assert "send again in" in result.stdout
    sent = person.json("send", "agent.f.r", "1", "--sender", "agent.f.fast", exits=3)
    assert 0 < sent["retry_after_ms"] <= 60_000


def test_a_full_mailbox_does_not_tell_how_full_it_is(person: Person) -> None:
    senders = ["agent.f.m1", "agent.f.m2"]
    person.has_keys(*senders)
    for sender in (*senders, senders[0]):
        person("send", "agent.f.full", "1", "--sender", sender)
    result = person("send", "agent.f.full", "1", "--sender", senders[1], exits=3)
    assert "backpressure (queue full" in result.stdout
    assert "3/3" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("send", "agent..a", "1"), "invalid"),
        (("send", "_relay", "1"), "belong to the relay"),
        (("send", "agent.a", "1", "--id", "a/b"), "invalid message id"),
        (("explain", "a/b"), "invalid message id"),
        (("inbox", "agent.*"), "wildcard"),
    ],
)
def test_bad_input_exits_with_2(
    relay: ServedRelay, arguments: tuple[str, ...], problem: str
) -> None:
    assert problem in one_sentence(relay.operator()(*arguments, exits=2))
