"""Keys that cannot bind a subject again, in the file of bindings."""

import os
from pathlib import Path

import pytest

from tests.server.identity.test_bindings import opened
from waypost.server.identity.binding_file import REPLACED_LINES_MAX, read_bindings
from waypost.server.identity.errors import KeyRevoked


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "identities.jsonl"


def test_a_rewritten_file_keeps_the_revoked_keys_of_free_subjects(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)
    with opened(path) as bindings:
        bindings.bind("agent.lost", "stolen", 0)
        bindings.unbind("agent.lost")
        for n in range(REPLACED_LINES_MAX + 9):
            bindings.bind("agent.a", "key", 0, f"seal-{n}", "signature")
    assert path.read_bytes().count(b"\n") < REPLACED_LINES_MAX
    with opened(path) as bindings:
        assert read_bindings(path).keys() == {"agent.a"}
        with pytest.raises(KeyRevoked):
            bindings.bind("agent.lost", "stolen", 1)
        bindings.bind("agent.lost", "new", 1)


def test_an_expired_subject_still_keeps_its_revoked_keys_out(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "stolen", 0)
        bindings.unbind("agent.a")
        bindings.bind("agent.a", "never-used", 1)
        assert bindings.expire(["agent.a"]) == ["agent.a"]
    with opened(path) as bindings:
        with pytest.raises(KeyRevoked):
            bindings.bind("agent.a", "stolen", 2)
        bindings.bind("agent.a", "never-used", 2)
