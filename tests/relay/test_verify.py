"""`verify`: reports every error and nothing else, and repairs for good."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from tests.relay.observing import DAY_MS, HOUR_MS, send, tree
from waypost import HousekeepingConfig, Relay, Settings
from waypost.relay.data_dir import DataDir
from waypost.relay.errors import DataDirInUse, DataDirUnusable
from waypost.relay.state.index import Index
from waypost.relay.verify.findings import Outcome, VerifyReport
from waypost.relay.verify.index_check import read_index
from waypost.relay.verify.verify import rebuild_index, verify
from waypost.testing import ManualClock

Start = Callable[..., Awaitable[Relay]]

SHORT = HousekeepingConfig(journal_retention_ms=HOUR_MS, segment_max_age_ms=HOUR_MS)


def texts_of(report: VerifyReport) -> list[str]:
    return [f"{one.outcome} {one.where}: {one.text}" for one in report.findings]


async def old_and_new_traffic(relay: Relay, clock: ManualClock) -> None:
    """Consume messages whose segment is then deleted, then leave some pending."""
    relay.register_endpoint("agent.a")
    await send(relay, 1, sender="agent.old", message_id="old")
    await relay.ack("agent.a", [one.id for one in await relay.lease("agent.a")])
    await relay.seal_journal()
    await send(relay, 2, sender="agent.new", message_id="new")
    clock.advance_ms(3 * HOUR_MS)
    relay.sweep()
    await relay.idle()
    await (
        relay._runtime.checkpoints._wait_until_written()
    )  # or a thread would decide whether it is dropped now
    relay.sweep()
    await relay.idle()
    assert not (relay._runtime.data.journal / f"{1:020d}.jsonl").exists()


async def test_rows_older_than_the_journal_are_not_reported(
    start: Start, data: Path, clock: ManualClock
) -> None:
    relay = await start(housekeeping=SHORT, default_ttl_ms=DAY_MS)
    await old_and_new_traffic(relay, clock)
    await relay.close()
    rows, _ = read_index(DataDir(data))
    assert rows is not None
    assert ("agent.old", "agent.a") in rows.last_seen
    assert texts_of(verify(DataDir(data))) == []


async def test_a_rebuild_keeps_rows_that_only_the_index_has(
    start: Start, data: Path, clock: ManualClock
) -> None:
    relay = await start(housekeeping=SHORT, default_ttl_ms=DAY_MS)
    await old_and_new_traffic(relay, clock)
    await relay.close()
    before, _ = read_index(DataDir(data))
    messages, lossy = rebuild_index(DataDir(data))
    after, _ = read_index(DataDir(data))
    assert (messages, lossy) == (1, False)
    assert before is not None
    assert after == before


async def test_an_index_from_before_the_last_sweep_has_no_findings(
    start: Start, data: Path, clock: ManualClock
) -> None:
    """Endpoints are journaled again, and removed messages are not, after the index's position."""
    relay = await start(housekeeping=SHORT, default_ttl_ms=DAY_MS)
    relay.register_endpoint("agent.a")
    await send(relay, 1, message_id="old")
    await relay.seal_journal()
    await send(relay, 2, message_id="new")
    await relay.rebuild_index()
    behind = (data / "index.db").read_bytes(), (data / "index.db-wal").read_bytes()
    await relay.ack("agent.a", [one.id for one in await relay.lease("agent.a", 1)])
    clock.advance_ms(3 * HOUR_MS)
    relay.sweep()
    await relay.idle()
    await relay.close()
    assert not (data / "journal" / f"{1:020d}.jsonl").exists()
    for suffix, content in zip(("", "-wal"), behind, strict=True):
        (data / f"index.db{suffix}").write_bytes(content)
    assert texts_of(verify(DataDir(data))) == []


async def test_duplicate_ids_past_their_window_may_be_missing(
    start: Start, data: Path, clock: ManualClock
) -> None:
    relay = await start(housekeeping=HousekeepingConfig(duplicate_window_ms=HOUR_MS))
    relay.register_endpoint("agent.a")
    await send(relay, 1, message_id="mine")
    clock.advance_ms(2 * HOUR_MS)
    relay.sweep()
    await relay.idle()
    await relay.close()
    rows, _ = read_index(DataDir(data))
    assert rows is not None
    assert rows.duplicates == {}
    assert texts_of(verify(DataDir(data))) == []


async def test_a_running_relay_is_looked_at_without_being_disturbed(
    start: Start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    for number in range(20):
        await send(relay, number)
    await relay.lease("agent.a", 5)
    await relay.idle()
    before = tree(data)
    report = await asyncio.to_thread(verify, DataDir(data))
    assert report.in_use_by
    assert texts_of(report) == []
    assert tree(data) == before
    with pytest.raises(DataDirInUse):
        verify(DataDir(data), repair=True)


async def test_an_unfinished_write_of_a_running_relay_is_not_damage(
    start: Start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay)
    [segment] = (data / "journal").glob("*.open")
    with segment.open("ab") as file:
        file.write(b'{"kind":"acce')
    assert texts_of(await asyncio.to_thread(verify, DataDir(data))) == []


async def test_segments_are_counted_off_one_by_one(start: Start, data: Path) -> None:
    relay = await start()
    for _ in range(3):
        relay.register_endpoint("agent.a")
        await send(relay)
        await relay.seal_journal()
    await relay.close()
    heard: list[tuple[int, int]] = []
    verify(DataDir(data), on_segment=lambda done, total: heard.append((done, total)))
    assert heard == [(1, 3), (2, 3), (3, 3)]


def test_a_directory_without_a_journal_is_rejected(data: Path) -> None:
    for repair in (False, True):
        with pytest.raises(DataDirUnusable):
            verify(DataDir(data), repair=repair)
    with pytest.raises(DataDirUnusable):
        rebuild_index(DataDir(data))
    assert not data.exists()


async def test_an_unused_relay_has_no_findings(start: Start, data: Path) -> None:
    await (await start()).close()
    assert texts_of(verify(DataDir(data))) == []


async def test_an_empty_index_only_has_to_catch_up(start: Start, data: Path) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay)
    await relay.close()
    (data / "index.db").unlink()
    Index(data / "index.db").close()
    assert texts_of(verify(DataDir(data))) == []


async def test_an_index_with_invalid_text_is_rebuilt(start: Start, data: Path) -> None:
    await (await start()).close()
    index = data / "index.db"
    index.write_bytes(index.read_bytes().replace(b"CREATE TABLE", b"CRE\xc1TE TABLE"))
    assert "cannot be read" in texts_of(verify(DataDir(data)))[0]
    verify(DataDir(data), repair=True)
    assert texts_of(verify(DataDir(data))) == []


async def test_a_payload_shared_by_several_endpoints_is_restored_for_all(
    start: Start, data: Path
) -> None:
    relay = await start()
    for subject in ("agent.a", "agent.c", "agent.d"):
        relay.register_endpoint(subject)
    await send(relay, "x" * 9000, to="agent.>", message_id="shared")
    await relay.close()
    [bodies] = (data / "journal").glob("*.bodies")
    whole = bodies.read_bytes()
    bodies.write_bytes(b"")
    for file in list((data / "mailboxes").glob("*/new/shared"))[1:]:
        file.unlink()
    report = verify(DataDir(data), repair=True)
    assert report.ok, texts_of(report)
    assert bodies.read_bytes() == whole
    assert len(list((data / "mailboxes").glob("*/new/shared"))) == 3


async def test_a_damaged_payload_of_a_removed_message_is_only_noted(
    start: Start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, "x" * 9000)
    await relay.ack("agent.a", [one.id for one in await relay.lease("agent.a")])
    await relay.close()
    [bodies] = (data / "journal").glob("*.bodies")
    bodies.write_bytes(b"")
    report = verify(DataDir(data))
    assert report.ok
    [text] = texts_of(report)
    assert text.startswith("noted")


async def test_an_index_is_trusted_where_the_journal_has_lost_events(
    start: Start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, 1, message_id="read")
    await relay.ack("agent.a", [one.id for one in await relay.lease("agent.a")])
    await relay.seal_journal()
    await relay.close()
    [segment] = (data / "journal").glob("*.jsonl")
    segment.write_bytes(segment.read_bytes().replace(b'"kind":"acked"', b'"kind":"eaten"'))
    report = verify(DataDir(data), repair=True)
    assert not report.ok
    assert report.messages == 0, "the message was acknowledged, and must not come back"
    assert any("so it is kept" in text for text in texts_of(report))


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return every file of a directory with sealed and open segments, bodies and dead letters."""
    data = tmp_path_factory.mktemp("pristine") / "data"

    async def live() -> None:
        async with Relay(data, settings=Settings(watch_files=False)) as relay:
            relay.register_endpoint("agent.a")
            for number in range(6):
                await send(relay, {"number": number}, message_id=f"small-{number}")
            await send(relay, "x" * 5000, message_id="large")
            spent = {"call_budget_remaining": 0}
            await send(relay, 1, message_id="broke", budget=spent)
            await relay.seal_journal()
            await relay.ack("agent.a", [one.id for one in await relay.lease("agent.a", 2)])
            await relay.lease("agent.a", 1)

    asyncio.run(live())
    return tree(data)


def write_tree(files: dict[str, bytes], data: Path) -> None:
    data.mkdir(mode=0o700)
    for name, content in files.items():
        path = data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


@hypothesis_settings(max_examples=40)
@given(st.data())
def test_verify_reports_any_damage_and_repairs_it_for_good(
    pristine: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory, draw: st.DataObject
) -> None:
    data = tmp_path_factory.mktemp("damaged") / "data"
    write_tree(pristine, data)
    names = sorted(name for name in pristine if "journal/" in name or "mailboxes/" in name)
    names = [name for name in [*names, "index.db"] if pristine[name]]
    target = data / draw.draw(st.sampled_from(names))
    content = bytearray(target.read_bytes())
    start = draw.draw(st.integers(0, len(content) - 1))
    end = draw.draw(st.integers(start + 1, len(content)))
    if draw.draw(st.booleans()):
        del content[start:end]
    else:
        content[start] ^= draw.draw(st.integers(1, 255))
    target.write_bytes(content)
    verify(DataDir(data))
    verify(DataDir(data), repair=True)
    after = verify(DataDir(data))
    left = [one for one in after.findings if one.outcome in (Outcome.FOUND, Outcome.REPAIRED)]
    assert not left, texts_of(after)
    asyncio.run(opens(data))


async def opens(data: Path) -> None:
    async with Relay(data, settings=Settings(watch_files=False)) as relay:
        relay.register_endpoint("agent.a")
        assert (await send(relay)).delivered_to == 1
