"""The operator's token goes to the relay it belongs to, and only with commands that need it."""

from pathlib import Path

from tests.cli.hostile_relay import hostile_relay, json_answer
from tests.cli.serve_process import User

RESULT = {"results": [{"message_id": "m", "delivered_to": 1}]}
RULES = {"rules": []}


def operator(url: str, home: Path) -> User:
    return User(url, home, WAYPOST_OPERATOR_TOKEN="the-secret")


def elsewhere(url: str) -> str:
    """Return the same address under a name that is not a loopback address."""
    return url.replace("127.0.0.1", "0.0.0.0")


def test_a_command_that_does_not_need_the_token_does_not_send_it(tmp_path: Path) -> None:
    requests: list[bytes] = []
    with hostile_relay(json_answer(RESULT), requests) as url:
        operator(url, tmp_path)("send", "agent.a", "1")
        operator(url, tmp_path)("send", "agent.a", "1", "--register")
    assert len(requests) == 2
    assert b"authorization" not in b"".join(requests).lower()


def test_the_operator_sends_messages_when_named_as_the_sender(tmp_path: Path) -> None:
    requests: list[bytes] = []
    with hostile_relay(json_answer(RESULT), requests) as url:
        operator(url, tmp_path)("send", "agent.a", "1", "--sender", "_operator")
    assert b"Bearer the-secret" in requests[0]


def test_the_token_is_not_sent_in_the_clear_to_another_machine(tmp_path: Path) -> None:
    requests: list[bytes] = []
    with hostile_relay(json_answer(RULES), requests) as url:
        there = operator(elsewhere(url), tmp_path)
        rejected = there("rules", "list", exits=1)
        assert "without TLS everyone on the way can read it" in rejected.stderr
        assert requests == []
        there("rules", "list", "--allow-plain-http")
        assert b"Bearer the-secret" in requests[0]


def test_the_token_is_sent_to_the_relay_that_first_accepted_it(tmp_path: Path) -> None:
    requests: list[bytes] = []
    with (
        hostile_relay(json_answer(RULES)) as own,
        hostile_relay(json_answer(RULES), requests) as url,
    ):
        operator(own, tmp_path)("rules", "list")
        there = operator(elsewhere(url), tmp_path)
        rejected = there("rules", "list", "--allow-plain-http", exits=1)
        assert "it belongs to the relay at this machine" in rejected.stderr
        assert requests == []
        there("rules", "list", "--allow-plain-http", "--new-address")
        there("rules", "list", "--allow-plain-http")
        operator(own, tmp_path)("rules", "list")
    assert len(requests) == 2


def test_a_relay_that_rejects_the_token_is_not_remembered(tmp_path: Path) -> None:
    problem = {"error": "no", "reason": "unauthorized", "retry_after_ms": 0}
    with hostile_relay(json_answer(problem, "401 Unauthorized")) as url:
        operator(elsewhere(url), tmp_path)("rules", "list", "--allow-plain-http", exits=1)
    with hostile_relay(json_answer(RULES)) as own:
        operator(own, tmp_path)("rules", "list")


def test_the_file_of_relays_is_private_and_holds_no_token(tmp_path: Path) -> None:
    with hostile_relay(json_answer(RULES)) as own:
        operator(own, tmp_path)("rules", "list")
        file = tmp_path / ".config" / "waypost" / "operator-relays.json"
        assert file.stat().st_mode & 0o777 == 0o600
        assert "the-secret" not in file.read_text()
        file.write_text("damaged")
        assert "mend or delete" in operator(own, tmp_path)("rules", "list", exits=1).stderr
