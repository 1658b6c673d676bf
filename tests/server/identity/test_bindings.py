"""Bindings of subjects to keys, and their durability."""

import errno
import os
import resource
import stat
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.faults.syncs import install_syncs
from waypost.server.identity.binding_file import (
    REPLACED_LINES_MAX,
    Binding,
    BindingFile,
    read_bindings,
)
from waypost.server.identity.bindings import Bindings
from waypost.server.identity.errors import (
    IdentitiesDamaged,
    IdentitiesNotSaved,
    NameNotBound,
    SubjectTaken,
    TooManyIdentities,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "identities.jsonl"


@contextmanager
def opened(path: Path) -> Iterator[Bindings]:
    bindings = Bindings.open(path)
    try:
        yield bindings
    finally:
        bindings.close()


def fill(path: Path, count: int) -> list[Binding]:
    with opened(path) as bindings:
        return [bindings.bind(f"agent.{n}", f"key-{n}", n, f"seal-{n}") for n in range(count)]


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """Limit the size of files that this process may write."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_the_first_key_owns_the_subject(path: Path) -> None:
    with opened(path) as bindings:
        assert bindings.bind("agent.a", "key", 5) == bindings.get("agent.a")
        with pytest.raises(SubjectTaken):
            bindings.bind("agent.a", "another", 6)
        assert bindings.bind("agent.a", "key", 7).at_ms == 5


def test_bindings_survive_a_restart(path: Path) -> None:
    made = fill(path, 3)
    with opened(path) as bindings:
        assert [bindings.get(one.subject) for one in made] == made
        assert len(bindings) == 3


def test_files_of_an_earlier_version_can_be_read(path: Path) -> None:
    path.write_text('{"subject":"agent.a","public_key":"key","at_ms":5,"crc":2766754402}\n')
    with opened(path) as bindings:
        assert bindings.get("agent.a") == Binding(subject="agent.a", public_key="key", at_ms=5)


def test_the_file_is_accessible_to_the_owner_only(path: Path) -> None:
    path.touch(mode=0o644)
    fill(path, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_the_newest_sealing_key_is_valid(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "key", 1, "old", "old-signature")
        bindings.bind("agent.a", "key", 2, "new", "new-signature")
    with opened(path) as bindings:
        binding = bindings.get("agent.a")
    assert binding is not None
    assert (binding.sealing_key, binding.sealing_signature) == ("new", "new-signature")
    assert binding.at_ms == 1


def test_authenticating_without_a_sealing_key_keeps_the_known_one(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "key", 1, "seal", "signature")
        assert bindings.bind("agent.a", "key", 2).sealing_key == "seal"
        assert bindings.get("agent.a") == bindings.bind("agent.a", "key", 3)


def test_authenticating_again_writes_nothing(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "key", 1, "seal", "signature")
        before = path.read_bytes()
        for day in range(1000):
            bindings.bind("agent.a", "key", day, "seal", "signature")
            bindings.bind("agent.a", "key", day)
    assert path.read_bytes() == before


def test_endless_changes_of_sealing_keys_do_not_fill_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)  # thousands of syncs are slow
    with opened(path) as bindings:
        bindings.bind("agent.other", "key", 0)
        for n in range(3 * REPLACED_LINES_MAX):
            bindings.bind("agent.a", "key", n, f"seal-{n}")
            assert path.read_bytes().count(b"\n") <= REPLACED_LINES_MAX + 4
        bindings.bind("agent.last", "key", 1)
    with opened(path) as bindings:
        binding = bindings.get("agent.a")
        assert binding is not None
        assert binding.sealing_key == f"seal-{3 * REPLACED_LINES_MAX - 1}"
        assert bindings.get("agent.other")
        assert bindings.get("agent.last")
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_there_is_a_bound(path: Path) -> None:
    bindings = Bindings(BindingFile(path), limit=2)
    bindings.bind("agent.a", "key", 1)
    bindings.bind("agent.b", "key", 1)
    with pytest.raises(TooManyIdentities):
        bindings.bind("agent.c", "key", 1)
    assert bindings.bind("agent.b", "key", 2, "seal").sealing_key == "seal"
    bindings.close()


def test_a_file_cut_anywhere_opens_and_loses_at_most_the_unconfirmed_line(path: Path) -> None:
    made = fill(path, 3)
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        confirmed = sum(end <= cut for end in ends)
        with opened(path) as bindings:
            found = [one for one in made if bindings.get(one.subject) == one]
            assert found in (made[:confirmed], made[: confirmed + 1]), f"cut at {cut}"
            assert len(bindings) == len(found)
            bindings.bind("agent.next", "key", 9)
        with opened(path) as bindings:
            assert len(bindings) == len(found) + 1, f"cut at {cut}"


@pytest.mark.parametrize("remains", [bytes(100), b"\xff" * 10, b'{"subject":"agent.'])
def test_an_unfinished_write_at_the_end_is_cut_off(path: Path, remains: bytes) -> None:
    fill(path, 2)
    whole = path.read_bytes()
    path.write_bytes(whole + remains)
    with opened(path) as bindings:
        assert len(bindings) == 2
    assert path.read_bytes() == whole


def test_no_changed_byte_goes_unnoticed(path: Path) -> None:
    fill(path, 2)
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with pytest.raises(IdentitiesDamaged):
            Bindings.open(path)
        assert path.read_bytes() == changed, "a file that cannot be trusted is left as it is"


def test_damage_is_reported_with_file_and_line(path: Path) -> None:
    fill(path, 3)
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([lines[0], lines[1][:20], lines[2], b""]))
    with pytest.raises(IdentitiesDamaged, match=rf"{path.name}, line 2 is damaged"):
        Bindings.open(path)


def test_two_owners_of_one_subject_are_damage(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    for file, key in ((path, "one"), (other, "two")):
        with opened(file) as bindings:
            bindings.bind("agent.a", key, 1)
    path.write_bytes(path.read_bytes() + other.read_bytes())
    with pytest.raises(IdentitiesDamaged, match="line 2"):
        Bindings.open(path)


def test_an_operator_may_free_a_subject_by_removing_its_line(path: Path) -> None:
    fill(path, 3)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(lines[0] + lines[2])
    with opened(path) as bindings:
        assert bindings.bind("agent.1", "another", 9).public_key == "another"


def test_a_freed_subject_goes_to_the_next_key(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "old", 1)
        assert bindings.unbind("agent.a").public_key == "old"
        assert bindings.get("agent.a") is None
        with pytest.raises(NameNotBound):
            bindings.unbind("agent.a")
    with opened(path) as bindings:
        assert bindings.get("agent.a") is None
        bindings.bind("agent.a", "new", 2)
    with opened(path) as bindings:
        binding = bindings.get("agent.a")
        assert binding is not None
        assert binding.public_key == "new"
    assert read_bindings(path) == {"agent.a": binding}


def test_a_file_with_changed_owners_cut_anywhere_never_has_a_wrong_owner(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "one", 1)
        bindings.bind_by_operator("agent.a", "two", 2, replace=True)
        bindings.unbind("agent.a")
        bindings.bind("agent.a", "three", 3)
    whole = path.read_bytes()
    ends = [place + 1 for place, byte in enumerate(whole) if byte == ord("\n")]
    owners = [None, "one", "two", None, "three"]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        confirmed = sum(end <= cut for end in ends)
        with opened(path) as bindings:
            found = bindings.get("agent.a")
        # The line break alone may be missing: then the line is complete.
        owner = None if found is None else found.public_key
        assert owner in owners[confirmed : confirmed + 2], f"cut at {cut}"


@pytest.mark.parametrize("lines", [[0, 0, 1, 1], [0, 2], [0, 1, 0, 3]])
def test_changes_of_owners_that_do_not_follow_each_other_are_damage(
    path: Path, lines: list[int]
) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "one", 1)
        bindings.unbind("agent.a")
        bindings.bind("agent.a", "two", 2)
        bindings.bind_by_operator("agent.a", "three", 3, replace=True)
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[one] for one in lines))
    with pytest.raises(IdentitiesDamaged):
        Bindings.open(path)


def test_the_operator_confirms_and_replaces_the_key_of_a_subject(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "one", 1, "seal", "signature")
        confirmed = bindings.bind_by_operator("agent.a", "one", 2)
        assert (confirmed.by_operator, confirmed.sealing_key, confirmed.at_ms) == (True, "seal", 1)
        with pytest.raises(SubjectTaken):
            bindings.bind_by_operator("agent.a", "two", 3)
        replaced = bindings.bind_by_operator("agent.a", "two", 3, replace=True)
        assert (replaced.public_key, replaced.sealing_key) == ("two", None)
        assert bindings.bind("agent.a", "two", 4, "new").by_operator


def test_endless_changes_of_owners_do_not_fill_the_disk(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fdatasync", lambda descriptor: None)  # thousands of syncs are slow
    with opened(path) as bindings:
        bindings.bind("agent.other", "key", 0)
        for n in range(REPLACED_LINES_MAX):
            bindings.bind("agent.a", f"key-{n}", n)
            bindings.unbind("agent.a")
            assert path.read_bytes().count(b"\n") <= REPLACED_LINES_MAX + 4
    with opened(path) as bindings:
        assert len(bindings) == 1


def test_only_unused_subjects_are_freed_when_they_expire(path: Path) -> None:
    with opened(path) as bindings:
        for subject in ("agent.a", "agent.b", "agent.c", "agent.d"):
            bindings.bind(subject, "key", 1)
        bindings.note_use("agent.b")
        bindings.bind("agent.c", "key", 2)  # authenticates again
        bindings.unbind("agent.d")
        everyone = ["agent.a", "agent.b", "agent.c", "agent.d", "agent.unknown"]
        assert bindings.expire(everyone) == ["agent.a"]
        bindings.save_uses()
    with opened(path) as bindings:
        assert bindings.expire(everyone) == []
        assert [one.subject for one in bindings.page("", 9)] == ["agent.b", "agent.c"]
        assert bindings.unused(0, 9) == []


def test_uses_that_cannot_be_written_are_written_later(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "key", 1)
        bindings.note_use("agent.a")
        with files_at_most(path.stat().st_size), pytest.raises(IdentitiesNotSaved):
            bindings.save_uses()
        assert bindings.has_unsaved_uses
        assert bindings.expire(["agent.a"]) == []
        bindings.save_uses()
        assert not bindings.has_unsaved_uses


def test_a_binding_is_synced_before_it_is_valid(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as bindings:
        syncs = install_syncs(monkeypatch)
        bindings.bind("agent.a", "key", 1)
        assert syncs.done == 1
        bindings.bind("agent.a", "key", 2)
        assert syncs.done == 1


def test_one_of_two_concurrent_keys_gets_the_subject(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    both_are_syncing = threading.Barrier(2)

    def sync(descriptor: int) -> None:
        try:
            both_are_syncing.wait(timeout=0.1)
        except threading.BrokenBarrierError:
            pass

    def bind(key: str) -> bool:
        try:
            return bindings.bind("agent.a", key, 1).public_key == key
        except SubjectTaken:
            return False

    with opened(path) as bindings, ThreadPoolExecutor(2) as threads:
        monkeypatch.setattr(os, "fdatasync", sync)
        assert sorted(threads.map(bind, ["one", "two"])) == [False, True]
    with opened(path) as bindings:
        assert len(bindings) == 1


def test_after_a_failed_sync_nothing_is_bound_until_a_restart(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "key", 1)
        install_syncs(monkeypatch).fail()
        for subject in ("agent.b", "agent.c"):
            with pytest.raises(IdentitiesNotSaved, match="could not be"):
                bindings.bind(subject, "key", 2)
            assert bindings.get(subject) is None
        assert bindings.bind("agent.a", "key", 3).at_ms == 1
    with opened(path) as bindings:
        assert len(bindings) == 1
        assert bindings.bind("agent.b", "key", 4).at_ms == 4


def test_a_full_disk_rejects_and_leaves_nothing_behind(path: Path) -> None:
    with opened(path) as bindings:
        bindings.bind("agent.a", "key", 1)
        whole = path.read_bytes()
        rejected = pytest.raises(IdentitiesNotSaved, match=os.strerror(errno.EFBIG))
        with files_at_most(len(whole) + 20), rejected:
            bindings.bind("agent.b", "key", 2)
        assert path.read_bytes() == whole
        assert bindings.get("agent.b") is None
        assert bindings.bind("agent.b", "other", 3).public_key == "other"
    with opened(path) as bindings:
        assert len(bindings) == 2


def test_a_full_disk_does_not_affect_known_agents(path: Path) -> None:
    with opened(path) as bindings:
        known = bindings.bind("agent.a", "key", 1)
        with files_at_most(path.stat().st_size):
            assert bindings.bind("agent.a", "key", 2) == known
