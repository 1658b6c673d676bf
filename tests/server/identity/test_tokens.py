"""Tokens: valid for one subject and a limited time."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from waypost.server.identity.tokens import TOKEN_ALIVE_MS, Tokens
from waypost.wire.handshake import from_text, to_text

TOKENS = Tokens(b"s" * 43)
NOW = 1_700_000_000_000
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

subjects = st.from_regex(r"[A-Za-z0-9_-]{1,20}(\.[A-Za-z0-9_-]{1,12}){0,15}", fullmatch=True)


@given(subject=subjects, age=st.integers(0, 2 * TOKEN_ALIVE_MS))
@example(subject="agent.a", age=TOKEN_ALIVE_MS)
@example(subject="agent.a", age=TOKEN_ALIVE_MS + 1)
def test_a_token_is_valid_for_its_subject_until_it_expires(subject: str, age: int) -> None:
    token, expires_at = TOKENS.issue(subject, NOW)
    assert expires_at == NOW + TOKEN_ALIVE_MS
    expected = subject if age <= TOKEN_ALIVE_MS else None
    assert TOKENS.subject_of(token, NOW + age) == expected


def test_the_longest_subject_gets_a_token() -> None:
    subject = ".".join(["x" * 15] * 15 + ["x" * 15])
    token, _ = TOKENS.issue(subject, NOW)
    assert len(subject) == 255
    assert TOKENS.subject_of(token, NOW) == subject


@given(position=st.integers(0, 10_000), character=st.sampled_from(ALPHABET))
def test_a_changed_token_is_invalid(position: int, character: str) -> None:
    token, _ = TOKENS.issue("agent.alice", NOW)
    position %= len(token)
    changed = token[:position] + character + token[position + 1 :]
    assert TOKENS.subject_of(changed, NOW) == ("agent.alice" if changed == token else None)


@given(garbage=st.text() | st.binary() | st.none() | st.integers() | st.text(ALPHABET))
def test_random_text_is_an_invalid_token_and_no_error(garbage: Any) -> None:
    assert TOKENS.subject_of(garbage, NOW) is None


@pytest.mark.parametrize(
    "garbage", ["", ".", "..", "\ud800.\ud800", "A" * 100_000, "YQ.", ".YQ", "é.é", "YQ==.YQ=="]
)
def test_malformed_text_is_an_invalid_token_and_no_error(garbage: str) -> None:
    assert TOKENS.subject_of(garbage, NOW) is None


def test_a_later_expiry_cannot_be_written_into_a_token() -> None:
    token, expires_at = TOKENS.issue("agent.alice", NOW)
    claim, _, mac = token.partition(".")
    longer = from_text(claim).replace(str(expires_at).encode(), str(expires_at + 1).encode())
    assert TOKENS.subject_of(f"{to_text(longer)}.{mac}", NOW) is None


def test_another_subject_cannot_be_written_into_a_token() -> None:
    mine, _ = TOKENS.issue("agent.mallory", NOW)
    yours, _ = TOKENS.issue("agent.alice", NOW + 1)
    forged = f"{yours.partition('.')[0]}.{mine.partition('.')[2]}"
    assert TOKENS.subject_of(forged, NOW) is None


def test_a_token_under_another_secret_is_invalid() -> None:
    token, _ = Tokens(b"t" * 43).issue("agent.alice", NOW)
    assert TOKENS.subject_of(token, NOW) is None


def test_the_secret_is_kept_so_that_tokens_survive_a_restart(tmp_path: Path) -> None:
    token, _ = Tokens.open(tmp_path / "token-secret").issue("agent.alice", NOW)
    assert Tokens.open(tmp_path / "token-secret").subject_of(token, NOW) == "agent.alice"


def test_a_new_secret_invalidates_all_tokens(tmp_path: Path) -> None:
    token, _ = Tokens.open(tmp_path / "token-secret").issue("agent.alice", NOW)
    (tmp_path / "token-secret").unlink()
    assert Tokens.open(tmp_path / "token-secret").subject_of(token, NOW) is None
