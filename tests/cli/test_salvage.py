"""`waypost rebuild --from-mailboxes`: a new journal from the files of mailboxes."""

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import CommandLine
from tests.cli.directories import add_dead_letters, fill, in_relay
from tests.relay.observing import events, tree
from waypost import Relay

NEW = f"mailboxes/{hashlib.sha256(b'agent.a').hexdigest()[:12]}/new"


def lose_journal(data: Path, *, index: bool = True) -> None:
    """Delete the journal, and the index with it or not."""
    shutil.rmtree(data / "journal")
    if index:
        os.unlink(data / "index.db")


def messages(data: Path) -> dict[str, list[dict[str, Any]]]:
    """Return pending messages and dead letters of every endpoint, as a consumer sees them."""
    found: dict[str, list[dict[str, Any]]] = {}

    async def act(relay: Relay) -> None:
        for endpoint in relay.list_endpoints():
            leased = await relay.lease(endpoint.subject, 1000)
            found[endpoint.subject] = [json.loads(json.dumps(_plain(one))) for one in leased]
            dead = await relay.dead_letters(endpoint.subject)
            found[f"{endpoint.subject} (dead)"] = [
                {**_plain(one.envelope), "reason": one.reason, "at": str(one.failed_at)}
                for one in dead
            ]

    in_relay(data, act)
    return dict(sorted(found.items()))


def _plain(envelope: Any) -> dict[str, Any]:
    budget = envelope.budget
    counts = [budget.hop_count, budget.ttl, list(budget.ancestor_chain)]
    times = [str(envelope.created_at), budget.call_budget_remaining]
    header = [envelope.id, envelope.subject, envelope.sender, envelope.reply_to]
    return {"header": header, "budget": counts, "more": times, "payload": envelope.payload}


@pytest.fixture
def filled(waypost: CommandLine) -> Path:
    """A directory with pending, leased and dead messages, one of them for two endpoints."""
    fill(waypost.data)
    add_dead_letters(waypost.data, "dead-1", "dead-2", to="agent.d")

    async def act(relay: Relay) -> None:
        relay.register_endpoint("team.x")
        relay.register_endpoint("team.y")
        await relay.publish("team.*", "both", sender="agent.b", message_id="both")
        await relay.publish("agent.d", 1, sender="agent.b", budget={"call_budget_remaining": 0})
        await relay.publish("agent.d", 2, sender="agent.b", reply_to="agent.b")
        await relay.lease("agent.d")
        done = await relay.publish("agent.c", "done", sender="agent.old")
        await relay.ack("agent.c", done.message_id)

    in_relay(waypost.data, act)
    return waypost.data


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_messages_and_dead_letters_are_as_before(
    waypost: CommandLine, filled: Path, tmp_path: Path, index: str
) -> None:
    expected = messages(shutil.copytree(filled, tmp_path / "before", symlinks=True))
    lose_journal(filled, index=index == "lost")
    report = waypost.json("rebuild", "--from-mailboxes")
    assert (report["pending"], report["dead_letters"], report["skipped"]) == (11, 3, [])
    assert messages(filled) == expected
    assert waypost.json("verify")["ok"]


def test_the_output_names_what_was_salvaged_and_what_was_not(
    waypost: CommandLine, filled: Path
) -> None:
    (filled / NEW / "not-json").write_text("not json")
    lose_journal(filled)
    text = waypost("rebuild", "--from-mailboxes").stdout
    assert "11 pending messages and 3 dead letters of 5 endpoints" in text
    assert f"{NEW}/not-json" in text


def test_last_seen_pairs_of_the_index_are_kept(waypost: CommandLine, filled: Path) -> None:
    lose_journal(filled, index=False)
    assert waypost.json("rebuild", "--from-mailboxes")["pairs"] > 0
    seen = [(one["sender"], one["endpoint"]) for one in events(filled, "seen")]
    assert seen == [("agent.old", "agent.c")]
    assert (filled / "index.db.lost").exists()


@pytest.mark.parametrize("index", ["kept", "lost"])
def test_a_relay_without_its_journal_reports_the_loss_and_the_command(
    waypost: CommandLine, filled: Path, index: str
) -> None:
    lose_journal(filled, index=index == "lost")
    problems: list[str] = []

    async def act(relay: Relay) -> None:
        problems.extend(relay.metrics().problems)

    in_relay(filled, act)
    assert len(problems) == 1
    assert "waypost rebuild --from-mailboxes" in problems[0]
    (filled / "journal").rename(filled / "elsewhere")
    assert waypost.json("rebuild", "--from-mailboxes")["pending"] == 11


def test_an_existing_journal_is_never_overwritten(waypost: CommandLine, filled: Path) -> None:
    before = tree(filled)
    result = waypost("rebuild", "--from-mailboxes", exits=1)
    assert "has a journal" in result.stderr
    assert tree(filled) == before
    lose_journal(filled)
    waypost("rebuild", "--from-mailboxes")
    before = tree(filled / "journal")
    waypost("rebuild", "--from-mailboxes", exits=1)
    assert tree(filled / "journal") == before


def test_a_message_that_a_crash_left_in_two_folders_is_salvaged_once(
    waypost: CommandLine, filled: Path
) -> None:
    (filled / NEW / "small-3").rename(filled / NEW / "../cur/small-3")
    shutil.copy(filled / NEW / "../cur/small-3", filled / NEW / "small-3")
    lose_journal(filled)
    report = waypost.json("rebuild", "--from-mailboxes")
    assert (report["pending"], report["skipped_count"]) == (11, 1)
    assert waypost.json("stats")["by_status"]["pending"] == 11


def test_two_subjects_with_the_same_short_directory_keep_their_messages(
    waypost: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("state.directories", "verify.salvage", "data_dir", "maildir.reconcile"):
        monkeypatch.setattr(f"waypost.relay.{module}.endpoint_hash", lambda subject: "0" * 12)
    fill(waypost.data)
    before = messages(waypost.data)
    lose_journal(waypost.data)
    assert waypost.json("rebuild", "--from-mailboxes")["pending"] == 8
    assert messages(waypost.data) == before


def test_an_interrupted_attempt_is_repeated(waypost: CommandLine, filled: Path) -> None:
    lose_journal(filled)
    (filled / "journal.new").mkdir()
    (filled / "journal.new" / "00000000000000000001.open").write_text("half")
    assert waypost.json("rebuild", "--from-mailboxes")["pending"] == 11
    assert not (filled / "journal.new").exists()


BUDGET = {
    "hop_count": 1,
    "max_hops": 5,
    "ancestor_chain": ["agent.a"],
    "ttl": 9_000_000_000_000,
    "call_budget_remaining": 9,
}
ENVELOPE: dict[str, Any] = {
    "id": "hostile",
    "subject": "agent.a",
    "sender": "agent.b",
    "reply_to": None,
    "budget": BUDGET,
    "created_at": "2026-11-15T20:07:06.402926Z",
    "payload": 1,
}
HOSTILE: dict[str, dict[str, Any]] = {
    "another id": {"id": "other"},
    "a sender that is no subject": {"sender": "no subject"},
    "a reply address that is no subject": {"reply_to": "../../etc"},
    "another recipient": {"subject": "agent.z", "budget": {**BUDGET, "ancestor_chain": []}},
    "a negative budget": {"budget": {**BUDGET, "hop_count": -5}},
    "a huge number": {"budget": {**BUDGET, "ttl": 1 << 62}},
    "a deep payload": {"payload": json.loads("[" * 100 + "]" * 100)},
    "a time without a zone": {"created_at": "2026-11-15T20:07:06"},
    "a time before 1970": {"created_at": "1960-11-15T20:07:06Z"},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_left_out_and_named(
    waypost: CommandLine, filled: Path, what: str
) -> None:
    (filled / NEW / "hostile").write_text(json.dumps({**ENVELOPE, **HOSTILE[what]}))
    lose_journal(filled)
    report = waypost.json("rebuild", "--from-mailboxes")
    assert [one["file"] for one in report["skipped"]] == [f"{NEW}/hostile"]
    assert report["pending"] == 11
    assert waypost.json("stats")["by_status"] == {
        "pending": 11,
        "scheduled": 0,
        "leased": 0,
        "dead": 3,
    }


def test_a_message_of_the_future_does_not_set_the_clock_of_the_relay(
    waypost: CommandLine, filled: Path
) -> None:
    future = {**ENVELOPE, "created_at": "2999-01-01T00:00:00Z"}
    (filled / NEW / "hostile").write_text(json.dumps(future))
    lose_journal(filled)
    assert waypost.json("rebuild", "--from-mailboxes")["pending"] == 12
    assert "2999" not in waypost("stats", "--json").stdout


def test_links_pipes_and_huge_files_are_left_out(waypost: CommandLine, filled: Path) -> None:
    secret = filled / "secret"
    secret.write_text(json.dumps({**ENVELOPE, "id": "link"}))
    (filled / NEW / "link").symlink_to(secret)
    os.mkfifo(filled / NEW / "pipe")
    (filled / NEW / "huge").touch()
    os.truncate(filled / NEW / "huge", 1 << 40)
    lose_journal(filled)
    report = waypost.json("rebuild", "--from-mailboxes")
    assert report["pending"] == 11
    assert sorted(Path(one["file"]).name for one in report["skipped"]) == ["huge", "link", "pipe"]


def test_a_directory_without_mailboxes_is_an_error(waypost: CommandLine, tmp_path: Path) -> None:
    assert "no mailboxes" in waypost("rebuild", "--from-mailboxes", exits=1).stderr
