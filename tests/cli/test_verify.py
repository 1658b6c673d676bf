"""`waypost verify` and `waypost rebuild` after all kinds of damage."""

import re
import sqlite3
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import (
    body_file,
    change_byte,
    fill,
    in_relay,
    mailbox_file,
    segments,
    tree,
)
from tests.faults.journal_editor import batches, repaired
from waypost import Relay


def findings(waypost: CommandLine, *arguments: str, exits: int = 0) -> list[tuple[str, str]]:
    """Return outcome and text of every finding of verify."""
    report = waypost.json("verify", *arguments, exits=exits)
    assert report["ok"] is (exits == 0)
    return [(one["outcome"], f"{one['where']}: {one['text']}") for one in report["findings"]]


def only(found: list[tuple[str, str]]) -> tuple[str, str]:
    assert len(found) == 1, found
    return found[0]


def delivered(waypost: CommandLine) -> list[Any]:
    """Return the ids in the mailbox of `agent.a`, in order, after a restart."""
    return [one["id"] for one in waypost.json("inbox", "agent.a", "--ack")["messages"]]


ALL_IDS = ["small-0", "small-1", "small-2", "small-3", "small-4", "large"]


@pytest.fixture(params=["maildir", "journal"])
def filled(request: pytest.FixtureRequest, waypost: CommandLine) -> CommandLine:
    """A directory with messages, with each kind of storage."""
    fill(waypost.data, storage=request.param)
    return waypost


def test_an_intact_directory_is_in_order(filled: CommandLine) -> None:
    report = filled.json("verify")
    assert report["ok"]
    assert report["findings"] == []
    assert (report["segments"], report["messages"]) == (2, 8)
    assert "Everything is in order." in filled("verify").stdout
    assert filled.json("verify", "--repair")["findings"] == []


def test_verify_without_repair_changes_nothing(filled: CommandLine) -> None:
    change_byte(segments(filled.data)[0], 2000)
    (filled.data / "index.db").unlink()
    before = tree(filled.data)
    filled("verify", exits=1)
    filled("verify", "--no-repair", exits=1)
    assert tree(filled.data) == before


def test_a_torn_write_is_truncated(filled: CommandLine) -> None:
    newest = segments(filled.data)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole + b'{"kind":"acked","seq":99,"at_us":1,"id":"sma')
    outcome, text = only(findings(filled, exits=1))
    assert outcome == "found"
    assert "44 bytes at the end are an unfinished write" in text
    assert only(findings(filled, "--repair"))[0] == "repaired"
    assert newest.read_bytes() == whole
    assert findings(filled) == []
    assert delivered(filled) == ALL_IDS


def test_a_truncated_journal_reports_the_loss_and_stays_usable(filled: CommandLine) -> None:
    newest = segments(filled.data)[-1]
    newest.write_bytes(newest.read_bytes()[:-30])
    found = findings(filled, "--repair", exits=1)
    assert ("repaired", f"{newest.name}:") == (found[0][0], found[0][1].split()[0])
    [lost] = [text for outcome, text in found if outcome == "lost"]
    assert "events are lost" in lost
    assert findings(filled) == []
    assert delivered(filled) == ALL_IDS


def test_a_flipped_byte_in_a_sealed_segment_is_corrected(filled: CommandLine) -> None:
    sealed = segments(filled.data)[0]
    whole = sealed.read_bytes()
    change_byte(sealed, whole.index(b'"number":3') + 9)
    outcome, text = only(findings(filled, exits=1))
    assert outcome == "found"
    assert "as the checksum proves" in text
    assert only(findings(filled, "--repair"))[0] == "repaired"
    assert sealed.read_bytes() == whole
    assert findings(filled) == []
    assert delivered(filled) == ALL_IDS


def test_worse_damage_in_a_sealed_segment_is_set_aside_and_reported(filled: CommandLine) -> None:
    sealed = segments(filled.data)[0]
    at = sealed.read_bytes().index(b'"number":3')
    change_byte(sealed, at)
    change_byte(sealed, at + 5)
    found = findings(filled, "--repair", exits=1)
    [damage] = [text for outcome, text in found if "are damaged" in text and outcome == "lost"]
    assert "is lost" in damage
    assert "set aside as journal/damaged/" in damage
    [copy] = (filled.data / "journal" / "damaged").iterdir()
    assert b"small-3" in copy.read_bytes()
    # The index still has the message, and the finding warns the operator.
    assert [text for _, text in found if "small-3 is in a damaged part" in text]
    assert "small-3" in delivered(filled) or filled.json("stats")["by_status"]["dead"]


def test_damage_set_aside_before_is_only_noted(filled: CommandLine) -> None:
    sealed = segments(filled.data)[0]
    at = sealed.read_bytes().index(b'"number":3')
    change_byte(sealed, at)
    change_byte(sealed, at + 5)
    findings(filled, "--repair", exits=1)
    delivered(filled)
    filled("dead-letters", "purge", "--yes")
    found = findings(filled)
    assert {outcome for outcome, _ in found} == {"noted"}
    assert [text for _, text in found if "the chain is broken" in text]
    assert "Everything is in order." in filled("verify").stdout


def test_a_missing_segment_is_reported_with_its_events(filled: CommandLine) -> None:
    async def seal_again(relay: Relay) -> None:
        await relay.seal_journal()
        await relay.publish("agent.c", 9, sender="agent.a")

    in_relay(filled.data, seal_again)
    segments(filled.data)[1].unlink()
    found = findings(filled, exits=1)
    assert [text for outcome, text in found if outcome == "lost" and "events are lost" in text]


def test_a_deleted_index_is_rebuilt(filled: CommandLine) -> None:
    (filled.data / "index.db").unlink()
    assert only(findings(filled, exits=1)) == ("found", "index.db: missing")
    assert only(findings(filled, "--repair"))[0] == "repaired"
    assert findings(filled) == []
    assert delivered(filled) == ALL_IDS


def test_an_index_that_is_not_a_database_is_rebuilt(filled: CommandLine) -> None:
    (filled.data / "index.db").write_bytes(b"not a database at all" * 100)
    outcome, text = only(findings(filled, exits=1))
    assert (outcome, "cannot be read" in text) == ("found", True)
    assert only(findings(filled, "--repair"))[0] == "repaired"
    assert findings(filled) == []


@pytest.mark.parametrize(
    ("tampering", "words"),
    [
        ("delete from messages where id = 'small-3'", "message small-3 of agent.a is missing"),
        ("update messages set sender = 'x' where id = 'large'", "sender is 'x', the journal has"),
        ("delete from endpoints where subject = 'agent.c'", "endpoint agent.c is missing"),
        ("insert into endpoints values ('agent.x', 5, '')", "endpoint agent.x should not be there"),
        ("update last_seen set at_ms = 5", "last-seen pair agent.a to agent.c: at_ms is 5"),
        ("delete from last_seen", "last-seen pair agent.b to agent.a is missing"),
        (
            "delete from duplicates where id = 'agent.b large'",
            "duplicate id agent.b large is missing",
        ),
        ("update position set seq = seq + 7", "but the journal ends with"),
        ("update position set offset = offset - 3", "not at a commit"),
    ],
)
def test_a_tampered_index_is_reported_row_by_row_and_rebuilt(
    waypost: CommandLine, tampering: str, words: str
) -> None:
    fill(waypost.data)
    with sqlite3.connect(waypost.data / "index.db") as index:
        index.execute(tampering)
    index.close()
    assert any(words in text for _, text in findings(waypost, exits=1))
    waypost.json("verify", "--repair", exits=1 if "seq + 7" in tampering else 0)
    assert findings(waypost) == []
    assert delivered(waypost) == ALL_IDS


def damage_file(path: Path, how: str) -> None:
    match how:
        case "deleted":
            path.unlink()
        case "truncated":
            path.write_bytes(path.read_bytes()[:10])
        case "changed":
            change_byte(path, 40)
        case "misplaced":
            path.rename(path.parent.with_name("failed") / path.name)
        case "doubled":
            (path.parent.with_name("failed") / path.name).write_bytes(path.read_bytes())


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("deleted", "small-4 missing from new/"),
        ("truncated", "small-4 10 bytes in new/ instead of"),
        ("changed", "small-4 in new/ differs from the stored message"),
        ("misplaced", "small-4 missing from new/"),
        ("doubled", "small-4 left over in failed/"),
    ],
)
def test_a_damaged_mailbox_file_is_restored(waypost: CommandLine, how: str, words: str) -> None:
    fill(waypost.data)
    before = tree(waypost.data / "mailboxes")
    damage_file(mailbox_file(waypost.data, "small-4"), how)
    outcome, text = only(findings(waypost, exits=1))
    assert (outcome, words in text) == ("found", True), text
    assert only(findings(waypost, "--repair"))[0] == "repaired"
    assert tree(waypost.data / "mailboxes") == before
    assert findings(waypost) == []


def test_a_file_of_a_removed_message_is_deleted(waypost: CommandLine) -> None:
    fill(waypost.data)
    stale = mailbox_file(waypost.data, "small-4")
    content = stale.read_bytes()
    waypost("inbox", "agent.a", "--ack")
    stale.write_bytes(content)
    assert "small-4 left over in new/" in only(findings(waypost, exits=1))[1]
    findings(waypost, "--repair")
    assert not stale.exists()


def test_a_drop_in_file_is_left_alone(waypost: CommandLine) -> None:
    fill(waypost.data)
    dropped = mailbox_file(waypost.data, "small-4").with_name("dropped-in")
    dropped.write_text('{"sender": "agent.b", "payload": 1}')
    assert findings(waypost) == []
    assert findings(waypost, "--repair") == []
    assert dropped.exists()


@pytest.mark.parametrize("how", ["changed", "truncated", "deleted"])
def test_a_damaged_body_file_is_restored_from_the_mailbox_file(
    waypost: CommandLine, how: str
) -> None:
    fill(waypost.data)
    bodies = body_file(waypost.data)
    whole = bodies.read_bytes()
    damage_file(bodies, how)
    outcome, text = only(findings(waypost, exits=1))
    assert outcome == "found"
    assert "the payload of large of agent.a is damaged; its mailbox file is intact" in text
    assert only(findings(waypost, "--repair"))[0] == "repaired"
    assert bodies.read_bytes() == whole
    assert findings(waypost) == []


def test_a_damaged_payload_without_a_mailbox_file_is_lost(waypost: CommandLine) -> None:
    fill(waypost.data, storage="journal")
    change_byte(body_file(waypost.data), 10)
    outcome, text = only(findings(waypost, "--repair", exits=1))
    assert outcome == "lost"
    assert "not in a mailbox file" in text
    assert delivered(waypost) == ALL_IDS[:-1]
    waypost("dead-letters", "purge", "--yes")
    assert only(findings(waypost))[0] == "noted"


def test_the_text_report_has_the_next_step(waypost: CommandLine) -> None:
    fill(waypost.data)
    (waypost.data / "index.db").unlink()
    text = waypost("verify", exits=1).stdout
    assert "found  index  index.db: missing" in text
    assert "1 problem to repair with 'waypost verify --repair'." in text
    assert "1 problem repaired." in waypost("verify", "--repair").stdout


def test_the_progress_bar_is_only_shown_on_a_terminal(waypost: CommandLine) -> None:
    fill(waypost.data)
    assert waypost("verify").stderr == ""


def test_rebuilding_gives_the_same_index(waypost: CommandLine) -> None:
    fill(waypost.data)
    before = waypost.json("stats")
    (waypost.data / "index.db").unlink()
    assert waypost.json("rebuild") == {"messages": 8, "journal_lost_events": False}
    assert waypost.json("stats") == before
    assert findings(waypost) == []
    assert "Rebuilt the index from the journal: 8 messages." in waypost("rebuild").stdout


def test_rebuilding_from_a_journal_with_losses_warns(waypost: CommandLine) -> None:
    fill(waypost.data)
    sealed = segments(waypost.data)[0]
    at = sealed.read_bytes().index(b'"number":3')
    change_byte(sealed, at)
    change_byte(sealed, at + 5)
    result = waypost("rebuild")
    assert "7 messages" in result.stdout
    assert "the journal has lost events" in result.stderr


def change_a_payload(path: Path) -> None:
    content = path.read_bytes()
    for batch in batches(path):
        if b'"number":3' in batch:
            changed = repaired(batch.replace(b'"number":3', b'"number":4444'))
            path.write_bytes(content.replace(batch, changed))


def exchange_two_batches(path: Path) -> None:
    *first, a, b, last = batches(path)
    path.write_bytes(b"".join([*first, b, a, last]))


def repeat_a_batch(path: Path) -> None:
    first, *rest = batches(path)
    path.write_bytes(b"".join([first, first, *rest]))


def remove_a_batch(path: Path) -> None:
    first, _, *rest = batches(path)
    path.write_bytes(b"".join([first, *rest]))


def forget_a_link(path: Path) -> None:
    first, second, *rest = batches(path)
    at = second.index(b',"prev"')
    path.write_bytes(b"".join([first, second[:at] + b"}\n", *rest]))


@pytest.mark.parametrize(
    "edit",
    [change_a_payload, exchange_two_batches, repeat_a_batch, remove_a_batch, forget_a_link],
)
def test_an_edited_segment_with_valid_checksums_breaks_the_chain(
    filled: CommandLine, edit: Callable[[Path], None]
) -> None:
    edit(segments(filled.data)[0])
    found = findings(filled, exits=1)
    assert [text for outcome, text in found if outcome == "lost" and "chain is broken" in text]


def test_a_changed_large_payload_with_a_valid_checksum_is_reported(waypost: CommandLine) -> None:
    fill(waypost.data, storage="journal")
    bodies, lines = body_file(waypost.data), segments(waypost.data)
    change_byte(bodies, 10)
    for path in lines:
        for batch in batches(path):
            if b'"body":[' in batch:
                crc = str(zlib.crc32(bodies.read_bytes())).encode()
                changed = re.sub(rb'("body":\[0,\d+,)\d+', rb"\g<1>" + crc, batch)
                path.write_bytes(path.read_bytes().replace(batch, repaired(changed)))
    found = [text for outcome, text in findings(waypost, exits=1) if outcome == "lost"]
    assert [text for text in found if text.endswith("a large payload was changed")]
    assert [text for text in found if "chain is broken" in text]


def test_batches_of_an_older_version_are_not_chained_and_in_order(filled: CommandLine) -> None:
    assert filled.json("verify")["chained_from"] == 1
    for path in segments(filled.data):
        path.write_bytes(re.sub(rb',"(prev|bodies)":("\w+"|\[.*?\])', b"", path.read_bytes()))
    (filled.data / "index.db").unlink()
    filled("rebuild")
    report = filled.json("verify")
    assert (report["chained_from"], report["findings"]) == (0, [])
    assert "names the one before it" not in filled("verify").stdout
    events = report["events"]
    filled("inbox", "agent.a", "--ack")
    assert filled.json("verify")["chained_from"] == events + 1
    first_chained = f"every batch from event {events + 1} on names the one before it"
    assert first_chained in filled("verify").stdout
