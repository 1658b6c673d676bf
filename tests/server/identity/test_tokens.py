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
KEY = to_text(bytes(32))
ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."

subjects = st.from_regex(r"[A-Za-z0-9_-]{1,20}(\.[A-Za-z0-9_-]{1,12}){0,15}", fullmatch=True)


def subject_of(tokens: Tokens, token: Any, now_ms: int) -> str | None:
    holder = tokens.holder_of(token, now_ms)
    return None if holder is None else holder.subject


@given(subject=subjects, age=st.integers(0, 2 * TOKEN_ALIVE_MS))
@example(subject="agent.a", age=TOKEN_ALIVE_MS)
@example(subject="agent.a", age=TOKEN_ALIVE_MS + 1)
def test_a_token_is_valid_for_its_subject_until_it_expires(subject: str, age: int) -> None:
    token, expires_at = TOKENS.issue(subject, KEY, NOW)
    assert expires_at == NOW + TOKEN_ALIVE_MS
    expected = subject if age <= TOKEN_ALIVE_MS else None
    assert subject_of(TOKENS, token, NOW + age) == expected


def test_the_longest_subject_gets_a_token() -> None:
    subject = ".".join(["x" * 15] * 15 + ["x" * 15])
    token, _ = TOKENS.issue(subject, KEY, NOW)
    assert len(subject) == 255
    assert subject_of(TOKENS, token, NOW) == subject


@given(position=st.integers(0, 10_000), character=st.sampled_from(ALPHABET))
def test_a_changed_token_is_invalid(position: int, character: str) -> None:
    token, _ = TOKENS.issue("agent.alice", KEY, NOW)
    position %= len(token)
    changed = token[:position] + character + token[position + 1 :]
    assert subject_of(TOKENS, changed, NOW) == ("agent.alice" if changed == token else None)


@given(garbage=st.text() | st.binary() | st.none() | st.integers() | st.text(ALPHABET))
def test_random_text_is_an_invalid_token_and_no_error(garbage: Any) -> None:
    assert subject_of(TOKENS, garbage, NOW) is None


@pytest.mark.parametrize(
    "garbage", ["", ".", "..", "\ud800.\ud800", "A" * 100_000, "YQ.", ".YQ", "é.é", "YQ==.YQ=="]
)
def test_malformed_text_is_an_invalid_token_and_no_error(garbage: str) -> None:
    assert subject_of(TOKENS, garbage, NOW) is None


def test_a_later_expiry_cannot_be_written_into_a_token() -> None:
    token, expires_at = TOKENS.issue("agent.alice", KEY, NOW)
    claim, _, mac = token.partition(".")
    longer = from_text(claim).replace(str(expires_at).encode(), str(expires_at + 1).encode())
    assert subject_of(TOKENS, f"{to_text(longer)}.{mac}", NOW) is None


def test_another_subject_cannot_be_written_into_a_token() -> None:
    mine, _ = TOKENS.issue("agent.mallory", KEY, NOW)
    yours, _ = TOKENS.issue("agent.alice", KEY, NOW + 1)
    forged = f"{yours.partition('.')[0]}.{mine.partition('.')[2]}"
    assert subject_of(TOKENS, forged, NOW) is None


def test_a_token_under_another_secret_is_invalid() -> None:
    token, _ = Tokens(b"t" * 43).issue("agent.alice", KEY, NOW)
    assert subject_of(TOKENS, token, NOW) is None


def test_the_secret_is_kept_so_that_tokens_survive_a_restart(tmp_path: Path) -> None:
    token, _ = Tokens.open(tmp_path / "token-secret").issue("agent.alice", KEY, NOW)
    assert subject_of(Tokens.open(tmp_path / "token-secret"), token, NOW) == "agent.alice"


def test_a_new_secret_invalidates_all_tokens(tmp_path: Path) -> None:
    token, _ = Tokens.open(tmp_path / "token-secret").issue("agent.alice", KEY, NOW)
    (tmp_path / "token-secret").unlink()
    assert subject_of(Tokens.open(tmp_path / "token-secret"), token, NOW) is None


def test_a_token_names_the_key_it_was_issued_for() -> None:
    token, _ = TOKENS.issue("agent.alice", KEY, NOW)
    assert TOKENS.holder_of(token, NOW) == ("agent.alice", KEY)


def test_a_token_is_not_valid_before_it_was_issued() -> None:
    token, _ = TOKENS.issue("agent.alice", KEY, NOW)
    assert TOKENS.holder_of(token, NOW - 1) is None
