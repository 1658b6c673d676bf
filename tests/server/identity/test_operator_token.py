"""The operator's token: created once, readable by the owner only."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.server.identity.errors import SecretUnusable
from waypost.server.identity.tokens import OperatorToken

TOKEN = OperatorToken("s" * 43)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "operator-token"


def test_the_token_is_created_at_the_first_start_and_kept(path: Path) -> None:
    OperatorToken.open(path)
    token = path.read_text().strip()
    assert len(token) == 43
    assert OperatorToken.open(path).matches(token)
    assert path.read_text().strip() == token


def test_every_relay_creates_its_own_token(tmp_path: Path) -> None:
    OperatorToken.open(tmp_path / "one")
    other = OperatorToken.open(tmp_path / "two")
    assert not other.matches((tmp_path / "one").read_text().strip())


def test_only_the_owner_can_read_it_whatever_the_umask(path: Path) -> None:
    before = os.umask(0)
    try:
        OperatorToken.open(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o602, 0o644, 0o660, 0o666, 0o777])
def test_a_file_accessible_to_others_is_rejected_with_the_fix(path: Path, mode: int) -> None:
    OperatorToken.open(path)
    path.chmod(mode)
    with pytest.raises(SecretUnusable, match=f"chmod 600 {path}"):
        OperatorToken.open(path)


def test_a_pipe_or_a_large_file_is_rejected_without_waiting(path: Path) -> None:
    os.mkfifo(path, 0o600)
    with pytest.raises(SecretUnusable, match="not a regular file"):
        OperatorToken.open(path)
    path.unlink()
    path.touch(mode=0o600)
    os.truncate(path, 1 << 40)
    with pytest.raises(SecretUnusable, match="larger than"):
        OperatorToken.open(path)


@pytest.mark.parametrize("content", ["", "\n", "short", "a" * 31, "two words " * 10, "é" * 40])
def test_a_file_without_a_valid_secret_is_rejected(path: Path, content: str) -> None:
    path.touch(mode=0o600)
    path.write_text(content, encoding="utf-8")
    with pytest.raises(SecretUnusable, match="does not contain a valid secret"):
        OperatorToken.open(path)
    assert path.read_text(encoding="utf-8") == content


def test_an_operator_may_choose_the_token(path: Path) -> None:
    path.touch(mode=0o600)
    path.write_text("correct-horse-battery-staple-and-more\n")
    assert OperatorToken.open(path).matches("correct-horse-battery-staple-and-more")


def test_a_path_that_is_no_regular_file_is_rejected(path: Path) -> None:
    path.mkdir()
    with pytest.raises(SecretUnusable, match="is not a regular file"):
        OperatorToken.open(path)


def test_an_interrupted_first_start_is_no_obstacle(path: Path) -> None:
    path.with_name(".operator-token.tmp").write_text("half")
    OperatorToken.open(path)
    assert OperatorToken.open(path).matches(path.read_text().strip())
    assert [one.name for one in path.parent.iterdir()] == [path.name]


@given(garbage=st.text() | st.binary() | st.none() | st.integers())
def test_any_other_value_does_not_match_and_is_no_error(garbage: Any) -> None:
    assert not TOKEN.matches(garbage)


@pytest.mark.parametrize("close", ["s" * 42, "s" * 44, "s" * 42 + "t", "\ud800", "S" * 43])
def test_almost_the_token_does_not_match(close: str) -> None:
    assert TOKEN.matches("s" * 43)
    assert not TOKEN.matches(close)
