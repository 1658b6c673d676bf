"""`waypost verify --public-key`: edits of an archived journal are found, whatever was repaired."""

import asyncio
import json
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import CommandLine
from tests.faults.journal_editor import (
    batches,
    rechain,
    repaired,
    segments,
    sign_again,
    write,
)
from waypost import HousekeepingConfig, Relay, Settings
from waypost.relay.verify.archive import ArchivePeriod, ArchiveReport, verify_archive
from waypost.server.identity.challenges import is_signed_by
from waypost.server.identity.relay_key import RelayKey
from waypost.testing import ManualClock

START_US = 1_793_491_200_000_000  # 2026-11-01
MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS
RARELY = HousekeepingConfig(
    sweep_interval_ms=30 * DAY_MS, segment_max_age_ms=30 * DAY_MS, journal_retention_ms=90 * DAY_MS
)
CONFIG = Settings(storage="journal", durability="async", watch_files=False, housekeeping=RARELY)


async def write_journal(data: Path) -> str:
    """Write three segments on three days, the last closed cleanly; return the public key."""
    clock = ManualClock(START_US)
    key = RelayKey.open(data)
    async with Relay(data, settings=CONFIG, clock=clock) as relay:
        relay.sign_journal(key)
        relay.register_endpoint("agent.a")
        for day in range(3):
            for number in range(2):
                text = {"day": day, "number": number}
                await relay.publish("agent.a", text, sender="agent.b")
            await relay.publish("agent.a", f"{day}" * 4_200, sender="agent.b")
            clock.advance_ms(MINUTE_MS)
            await relay.idle()
            await relay.lease("agent.a", 2)
            if day < 2:
                await relay.seal_journal()
                clock.advance_ms(DAY_MS)
    return key.public_key


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A copy of a journal, without anything else of its data directory, and the public key."""
    root = tmp_path_factory.mktemp("archive")
    (root / "data").mkdir(mode=0o700)
    key = asyncio.run(write_journal(root / "data"))
    copy = root / "copy"
    copy.mkdir()
    for path in (root / "data" / "journal").iterdir():
        if path.suffix in (".jsonl", ".open", ".bodies"):
            shutil.copy(path, copy)
    return copy, key


@pytest.fixture
def archive(written: tuple[Path, str], tmp_path: Path) -> Path:
    return shutil.copytree(written[0], tmp_path / "archive")


@pytest.fixture
def key(written: tuple[Path, str]) -> str:
    return written[1]


def check(directory: Path, *keys: str, since_us: int = 0, until_us: int = 0) -> ArchiveReport:
    return verify_archive(directory, keys, is_signed_by, ArchivePeriod(since_us, until_us))


def change_a_payload(directory: Path) -> None:
    path = segments(directory)[0]
    write(
        path,
        [repaired(one.replace(b'"number":1', b'"number":77')) for one in batches(path)],
    )


def remove_a_batch(directory: Path) -> None:
    path = segments(directory)[1]
    first, _, *rest = batches(path)
    write(path, [first, *rest])


def exchange_two_batches(directory: Path) -> None:
    path = segments(directory)[1]
    first, second, third, *rest = batches(path)
    write(path, [first, third, second, *rest])


def insert_a_batch(directory: Path) -> None:
    path = segments(directory)[1]
    first, second, *rest = batches(path)
    write(path, [first, second, second, *rest])


def edit_a_body_file(directory: Path) -> None:
    path = segments(directory)[0]
    bodies = path.with_suffix(".bodies")
    content = bodies.read_bytes().replace(b"0000", b"9999")
    bodies.write_bytes(content)
    crc = str(zlib.crc32(content)).encode()
    write(
        path,
        [repaired(re.sub(rb'("body":\[0,\d+,)\d+', rb"\g<1>" + crc, one)) for one in batches(path)],
    )


def remove_a_segment(directory: Path) -> None:
    segments(directory)[1].unlink()


def forge_a_signature(directory: Path) -> None:
    path = segments(directory)[-1]
    *rest, last = batches(path)
    forged = re.sub(rb'"signature":".', b'"signature":"_', last)
    assert forged != last
    write(path, [*rest, repaired(forged)])


def cut_a_batch_in_half(directory: Path) -> None:
    path = segments(directory)[-1]
    path.write_bytes(path.read_bytes()[:-20])


def add_to_the_last_commit_line(directory: Path) -> None:
    path = segments(directory)[-1]
    *rest, last = batches(path)
    write(path, [*rest, last.replace(b',"prev":', b',"note":1,"prev":')])


EDITS: dict[Callable[[Path], None], str] = {
    change_a_payload: "the chain is broken",
    remove_a_batch: "missing before it",
    exchange_two_batches: "the chain is broken",
    insert_a_batch: "the chain is broken",
    edit_a_body_file: "a large payload was changed",
    remove_a_segment: "missing before it",
    forge_a_signature: "has a signature that its key did not make",
    cut_a_batch_in_half: "are not a complete batch",
    add_to_the_last_commit_line: "its commit line is not as a relay writes it",
}


def test_an_unchanged_archive_is_whole_and_signed(archive: Path, key: str) -> None:
    report = check(archive, key)
    assert report.findings == []
    assert (report.segments, report.checkpoints, report.batches_after) == (3, 6, 0)
    assert (report.first_seq, report.chained_from) == (1, 1)
    assert report.signed_seq == report.last_seq - 1
    assert report.signed_us == START_US + (2 * DAY_MS + 3 * MINUTE_MS) * 1000


@pytest.mark.parametrize("edit", EDITS, ids=lambda edit: edit.__name__)
def test_an_edit_with_repaired_checksums_is_found(
    archive: Path, key: str, edit: Callable[[Path], None]
) -> None:
    edit(archive)
    texts = [one.text for one in check(archive, key).findings]
    assert [text for text in texts if EDITS[edit] in text], texts


@pytest.mark.parametrize("edit", [change_a_payload, exchange_two_batches, edit_a_body_file])
def test_an_edit_that_computes_the_whole_chain_again_is_found_by_the_signatures(
    archive: Path, key: str, edit: Callable[[Path], None]
) -> None:
    edit(archive)
    rechain(archive)
    report = check(archive, key)
    texts = [one.text for one in report.findings]
    assert [text for text in texts if "has a signature that its key did not make" in text]
    assert not [text for text in texts if "the chain is broken" in text]
    if edit is change_a_payload:
        assert report.checkpoints == 0


def test_a_journal_signed_again_by_another_key_is_not_the_relays(
    archive: Path, key: str, tmp_path: Path
) -> None:
    other = RelayKey.open(tmp_path)
    change_a_payload(archive)
    sign_again(archive, other)
    assert check(archive, other.public_key).findings == []
    texts = [one.text for one in check(archive, key).findings]
    assert f"no checkpoint is signed by {key}: nothing shows who wrote this" in texts
    assert [text for text in texts if f"is signed by another key: {other.public_key}" in text]


def test_a_checkpoint_of_another_journal_of_the_same_key_is_found(archive: Path, key: str) -> None:
    path = segments(archive)[-1]
    *rest, last = batches(path)
    earlier = next(one for one in batches(segments(archive)[0]) if b'"kind":"checkpoint"' in one)
    fields = json.loads(last.splitlines()[0])
    fields |= {name: json.loads(earlier.splitlines()[0])[name] for name in ("head", "signature")}
    line = json.dumps(fields, separators=(",", ":")).encode() + b"\n"
    write(path, [*rest, repaired(line + last.splitlines(keepends=True)[1])])
    texts = [one.text for one in check(archive, key).findings]
    assert [text for text in texts if "stands for another batch" in text]
    assert [text for text in texts if "has a signature that its key did not make" in text]


def test_an_end_cut_off_at_a_signature_is_found_by_the_time_that_was_asked_for(
    archive: Path, key: str
) -> None:
    segments(archive)[-1].unlink()
    report = check(archive, key)
    assert report.ok
    assert report.signed_us == START_US + (DAY_MS + 2 * MINUTE_MS) * 1000
    assert report.batches_after == 1
    texts = [
        one.text for one in check(archive, key, until_us=START_US + 2 * DAY_MS * 1000).findings
    ]
    assert texts == ["the last signature is earlier than asked for: the end may be missing"]


def test_batches_after_the_last_signature_are_counted_and_not_confirmed(
    archive: Path, key: str
) -> None:
    path = segments(archive)[-1]
    write(path, batches(path)[:-1])
    report = check(archive, key)
    assert report.ok
    assert report.batches_after == 1
    assert report.signed_seq < report.last_seq - 1


def test_segments_before_the_time_asked_for_are_not_needed(archive: Path, key: str) -> None:
    change_a_payload(archive)
    since_us = START_US + DAY_MS * 1000
    assert not check(archive, key).ok
    report = check(archive, key, since_us=since_us)
    assert report.findings == []
    assert (report.segments, report.first_us <= since_us) == (2, True)
    segments(archive)[0].unlink()  # as retention does
    assert check(archive, key, since_us=since_us).ok
    texts = [one.text for one in check(archive, key, since_us=START_US).findings]
    begins = report.first_seq
    assert texts == [f"the journal begins with event {begins:,}, later than asked for"]


def test_a_segment_that_pretends_to_be_older_is_found(archive: Path, key: str) -> None:
    """Without the link to it, a changed segment could hide before the time asked for."""
    path = segments(archive)[0]
    *rest, last = batches(path)
    early = re.sub(rb'"at_us":\d+(?=,"count")', b'"at_us":1', last)
    write(path, [*rest, early])
    report = check(archive, key, since_us=START_US + 1)
    assert [one.text for one in report.findings if "the chain is broken" in one.text]


def test_the_part_that_an_older_version_wrote_is_not_confirmed(archive: Path, key: str) -> None:
    first = segments(archive)[0]
    first.write_bytes(re.sub(rb',"(prev|bodies)":("\w+"|\[.*?\])', b"", first.read_bytes()))
    since = check(archive, key, since_us=START_US)
    assert [one.text for one in since.findings if "are not chained" in one.text]


@given(data=st.data())
@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_any_changed_byte_is_found(
    written: tuple[Path, str], tmp_path: Path, data: st.DataObject
) -> None:
    copy, key = written
    path = data.draw(st.sampled_from(sorted(copy.iterdir())))
    content = bytearray(path.read_bytes())
    offset = data.draw(st.integers(0, len(content) - 1))
    content[offset] ^= data.draw(st.integers(1, 255))
    changed = tmp_path / "changed"
    shutil.rmtree(changed, ignore_errors=True)
    shutil.copytree(copy, changed)
    (changed / path.name).write_bytes(content)
    assert not check(changed, key).ok


def test_any_changed_byte_of_the_last_batch_is_found(archive: Path, key: str) -> None:
    """Nothing is after it: no link and no signature covers its commit line."""
    path = segments(archive)[-1]
    content = path.read_bytes()
    last = len(batches(path)[-1])
    for offset in range(len(content) - last, len(content)):
        for change in (1, 4, 0x20):
            edited = bytearray(content)
            edited[offset] ^= change
            path.write_bytes(edited)
            assert not check(archive, key).ok, (offset, change, bytes(edited[-last:]))


# The command


def test_the_command_prints_what_is_confirmed(
    waypost: CommandLine, archive: Path, key: str, tmp_path: Path
) -> None:
    text = waypost("verify", "--public-key", key, "--since", "2026-11-01", str(archive)).stdout
    assert f"6 checkpoints signed by {key}, the last at 2026-11-03 00:03:00 UTC" in text
    assert re.search(r"Whole and unchanged from event 1 to event \d+\.", text)
    file = tmp_path / "key.txt"
    file.write_text(f"{key}\n")
    report = waypost.json("verify", "--public-key", str(file), str(archive))
    assert (report["ok"], report["public_keys"], report["checkpoints"]) == (True, [key], 6)


def test_the_command_exits_with_1_and_names_what_is_wrong(
    waypost: CommandLine, archive: Path, key: str
) -> None:
    change_a_payload(archive)
    text = waypost("verify", "--public-key", key, str(archive), exits=1).stdout
    assert "the chain is broken at byte" in text
    assert "Not shown to be unchanged: " in text
    assert waypost.json("verify", "--public-key", key, str(archive), exits=1)["ok"] is False


def test_the_command_reads_a_data_directory_and_leaves_it_as_it_is(
    waypost: CommandLine, written: tuple[Path, str]
) -> None:
    data, key = written[0].parent / "data", written[1]
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}
    assert waypost.json("verify", "--public-key", key, "--data-dir", str(data))["ok"]
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before
    assert waypost.json("verify", "--data-dir", str(data))["ok"]


@pytest.mark.parametrize(
    ("arguments", "exits", "text"),
    [
        (
            ["--public-key", "nonsense", "ARCHIVE"],
            2,
            "neither the public key of a relay nor a file with one",
        ),
        (["--public-key", "KEY", "--repair"], 2, "--repair changes a journal"),
        (["--since", "2026-11-01"], 2, "give the relay's --public-key"),
        (["--public-key", "KEY", "/"], 1, "has no journal segments"),
        (["--public-key", "KEY", "--since", "yesterday"], 2, "is not an instant"),
    ],
)
def test_wrong_arguments_are_explained(
    waypost: CommandLine, archive: Path, key: str, arguments: list[str], exits: int, text: str
) -> None:
    values = {"KEY": key, "ARCHIVE": str(archive)}
    result = waypost("verify", *(values.get(one, one) for one in arguments), exits=exits)
    assert text in result.stderr
