"""Dialogues of a real relay in the lake: conversations as rows, and their replay."""

import asyncio
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from waypost import Relay, Settings
from waypost.pipeline.ingest.job import ingest
from waypost.pipeline.journal.sources import parse_sources
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.pipeline.tables import anomalies, loops, messages, threads
from waypost.pipeline.tables.build import build
from waypost.testing import ManualClock

SETTINGS = Settings(storage="journal", durability="async", watch_files=False, default_call_budget=6)


async def talk(data: Path) -> list[str]:
    """Let agent.a and agent.b talk until the calls are spent, three times; return the threads."""
    clock, begun = ManualClock(1_767_225_600_000_000), []
    async with Relay(data, settings=SETTINGS, clock=clock) as relay:
        for name in ("agent.a", "agent.b", "agent.c"):
            relay.register_endpoint(name)
        for _ in range(3):
            result = await relay.publish("agent.b", 0, sender="agent.a")
            begun.append(result.message_id)
            turn = 1
            while result.delivered_to:
                clock.advance_ms(1000)
                me = ("agent.a", "agent.b")[turn % 2]
                [message] = await relay.lease(me)
                result = await relay.publish(message.sender, 0, sender=me, parent=message)
                await relay.ack(me, message.id)
                turn += 1
        await relay.publish("agent.c", "alone", sender="agent.a")
        await relay.seal_journal()
    return begun


@pytest.fixture(scope="module")
def spoken(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, list[str]]:
    root = tmp_path_factory.mktemp("spoken")
    begun = asyncio.run(talk(root / "data"))
    lake = open_lake(spark, str(root / "lake"), create=True)
    ingest(lake, parse_sources([f"r={root / 'data'}"]))
    build(lake)
    return lake, begun


def test_a_conversation_is_one_row(spoken: tuple[Lake, list[str]]) -> None:
    lake, begun = spoken
    rows = lake.read(threads.NAME, threads.SCHEMA).orderBy("first_at").collect()
    assert [row.thread for row in rows] == begun
    for row in rows:
        assert (row.messages, row.answers, row.rejected, row.exhausted) == (7, 3, 1, 1)
        assert row.participants == ["agent.a", "agent.b"]
        assert (row.calls_left, row.hops_max) == (0, 0)


def test_every_message_names_its_thread(spoken: tuple[Lake, list[str]]) -> None:
    lake, begun = spoken
    rows = lake.read(messages.NAME, messages.SCHEMA).collect()
    found = {thread: sum(row.thread == thread for row in rows) for thread in begun}
    assert found == dict.fromkeys(begun, 7)
    [alone] = [row for row in rows if row.endpoint == "agent.c"]
    assert (alone.thread, alone.answer) == (alone.id, False)


def test_pairs_that_talk_until_the_end_are_anomalies_and_no_loops(
    spoken: tuple[Lake, list[str]],
) -> None:
    lake, begun = spoken
    [row] = lake.read(anomalies.NAME, anomalies.SCHEMA).collect()
    assert (row.kind, row.sender, row.endpoint) == ("exhausted", "agent.a", "agent.b")
    assert begun[-1] in row.why
    assert lake.read(loops.NAME, loops.SCHEMA).isEmpty()


def test_a_replay_of_dialogues_gives_no_difference(spoken: tuple[Lake, list[str]]) -> None:
    result = backtest(spoken[0])
    assert (result.differences, result.rejected) == (0, {"budget_exceeded": 3})


def test_a_journal_written_before_answers_returned_replays_as_it_was(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its third turn was rejected as a cycle, and is so again: the line has no `answer`."""
    data = Path(__file__).parents[2] / "journals" / "before_dialogues"
    lake = open_lake(spark, str(tmp_path / "lake"), create=True)
    ingest(lake, parse_sources([f"r={data}"]))
    build(lake)
    result = backtest(lake)
    assert (result.differences, result.rejected) == (0, {"budget_exceeded": 1})
    rows = lake.read(messages.NAME, messages.SCHEMA).collect()
    assert [row.thread for row in rows] == [row.id for row in rows]
    assert lake.read(loops.NAME, loops.SCHEMA).count() == 1
