"""The index: derived from the journal, and rebuilt whenever it is unusable."""

import sqlite3
import stat
from pathlib import Path

import pytest

from tests.relay.observing import payloads, send, write
from waypost import QosConfig, Relay
from waypost.relay.data_dir import DataDir
from waypost.relay.state.index import take_changes, to_row
from waypost.relay.verify.verify import verify

TABLES = ("endpoints", "messages", "last_seen", "duplicates")


def rows(data: Path, query: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(data / "index.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def change(data: Path, statement: str) -> None:
    connection = sqlite3.connect(data / "index.db")
    try:
        connection.execute(statement)
        connection.commit()
    finally:
        connection.close()


def contents(data: Path) -> dict[str, list[tuple[object, ...]]]:
    return {table: sorted(rows(data, f"select * from {table}")) for table in TABLES}


@pytest.fixture
async def busy(start) -> Relay:
    """A relay with rows in every table: pending, leased and dead messages."""
    relay: Relay = await start(qos=QosConfig(enabled=True))
    for name in ("agent.a", "agent.b"):
        relay.register_endpoint(name)
    for number in range(3):
        await send(relay, number)
    await relay.lease("agent.a", limit=1)
    await send(relay, "chosen", to="agent.b", message_id="order-1")
    await send(relay, "dead", budget={"call_budget_remaining": 0})
    return relay


async def test_the_index_uses_a_write_ahead_log(busy: Relay, data: Path) -> None:
    assert rows(data, "pragma journal_mode") == [("wal",)]


async def test_a_checkpoint_does_not_change_after_it_was_taken(busy: Relay) -> None:
    runtime = busy._runtime
    taken = take_changes(runtime.ledger.state, runtime.journal.committed, replace_all=True)
    before = [to_row(one) for one in taken.messages]
    assert await busy.lease("agent.a")
    assert [to_row(one) for one in taken.messages] == before


async def test_the_index_is_readable_by_its_owner_only(busy: Relay, data: Path) -> None:
    assert mode_of(data / "index.db") == 0o600


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


async def test_there_is_one_row_for_each_message_with_its_status(busy: Relay, data: Path) -> None:
    assert await busy.rebuild_index() == 5
    found = rows(data, "select endpoint, status from messages order by ordering")
    assert found == [
        ("agent.a", "cur"),
        ("agent.a", "new"),
        ("agent.a", "new"),
        ("agent.b", "new"),
        ("agent.a", "failed"),
    ]


async def test_a_message_that_left_has_no_row(busy: Relay, data: Path) -> None:
    await busy.ack("agent.b", "order-1")
    await busy.rebuild_index()
    assert rows(data, "select * from messages where id = 'order-1'") == []


async def test_a_message_that_left_after_a_restart_has_no_row(busy: Relay, data: Path) -> None:
    await busy.close()
    async with Relay(data) as again:
        await again.ack("agent.b", "order-1")
    assert rows(data, "select * from messages where id = 'order-1'") == []
    assert len(rows(data, "select * from messages")) == 4


async def test_an_index_that_was_deleted_is_made_again_the_same(
    busy: Relay, start, data: Path
) -> None:
    fields = {"qos": QosConfig(enabled=True)}
    await (await start(**fields)).close()  # leases have come back by now
    before = contents(data)
    (data / "index.db").unlink()
    await (await start(**fields)).close()
    assert contents(data) == before
    assert all(before.values())


@pytest.mark.parametrize(
    "damage",
    [
        "garbage",
        "empty",
        "update position set format = 999",
        "update position set seq = seq + 1000, offset = offset + 1000000",
        "drop table messages",
        "update messages set status = 'new', size = 'large'",
    ],
)
async def test_an_unusable_index_is_rebuilt(busy: Relay, start, data: Path, damage: str) -> None:
    before = busy.metrics().by_status
    await busy.close()
    if damage in ("garbage", "empty"):
        write(data / "index.db", "x" * 5000 if damage == "garbage" else "")
    else:
        change(data, damage)
    relay = await start()
    assert relay.metrics().by_status == {**before, "pending": 4, "leased": 0}
    assert payloads(await relay.lease("agent.a")) == [0, 1, 2]


async def test_while_the_index_cannot_be_written_nothing_is_lost(
    busy: Relay, start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(changes: object) -> None:
        raise OverflowError("some number")

    await busy.rebuild_index()
    with monkeypatch.context() as broken:
        broken.setattr(busy._runtime.index, "write", fail)
        await send(busy, "meanwhile")
        await busy.rebuild_index()
        assert "index not written" in busy.metrics().problems[0]
    await send(busy, "afterwards")
    relay = await start()
    assert payloads(await relay.lease("agent.a")) == [0, 1, 2, "meanwhile", "afterwards"]


async def test_a_problem_with_the_index_ends_when_it_can_be_written_again(
    busy: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(changes: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    with monkeypatch.context() as broken:
        broken.setattr(busy._runtime.index, "write", fail)
        await busy.rebuild_index()
        assert busy.metrics().problems == ["index not written: disk I/O error"]
    await busy.rebuild_index()
    assert busy.metrics().problems == []


async def test_an_index_of_the_format_before_tiers_is_taken_over(
    start, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    relay: Relay = await start(qos=QosConfig(enabled=True))
    relay.register_endpoint("agent.a")
    await send(relay, "pending")
    await send(relay, "dead", budget={"call_budget_remaining": 0})
    await relay.close()
    before = contents(data)
    for statement in (
        "alter table messages drop column tier",
        "alter table messages drop column cause",
        "alter table messages drop column due_us",
        "alter table endpoints drop column directory",
        "update position set format = 2",
    ):
        change(data, statement)
    relay = await start(qos=QosConfig(enabled=True))
    assert "index" not in caplog.text
    assert payloads(await relay.lease("agent.a")) == ["pending"]
    assert relay._runtime.ledger.state.mailboxes["agent.a"].occupancy.strangers_depth == 0
    await relay.close()
    after = contents(data)
    assert after["last_seen"] == before["last_seen"]
    assert sorted(row[:3] for row in after["messages"]) == sorted(
        row[:3] for row in before["messages"]
    )
    assert not verify(DataDir(data)).findings


async def test_an_index_of_the_format_before_scheduled_messages_is_taken_over(
    start, data: Path, caplog: pytest.LogCaptureFixture
) -> None:
    relay: Relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, "pending")
    await relay.close()
    before = contents(data)
    change(data, "alter table messages drop column due_us")
    change(data, "update position set format = 3")
    relay = await start()
    assert "index" not in caplog.text
    sent = await send(relay, "later", delay=60)
    await relay.rebuild_index()
    assert [row[2:4] for row in contents(data)["messages"]] == [
        (before["messages"][0][2], "new"),
        (sent.message_id, "later"),
    ]
    await relay.close()
    assert not verify(DataDir(data)).findings
