"""Imported traces give the same events, in the same order, as a simple program."""

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.asked import counted_queries
from waypost.pipeline.errors import BadTrace, LakeUnusable
from waypost.pipeline.jobs.import_trace import NEXT_ACTIVITY, Drain, TraceSummary, import_trace
from waypost.pipeline.lake.events import EVENTS
from waypost.pipeline.lake.lake import Lake, open_lake
from waypost.policy.settings import Settings, merge_settings

Message = tuple[str, str, int, int]
"""Source, target, µs, bytes."""


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> Lake:
    return open_lake(spark, str(tmp_path / "lake"), create=True)


def import_text(
    lake: Lake, text: str, path: Path, drain: Drain = NEXT_ACTIVITY
) -> tuple[TraceSummary, list[dict[str, Any]]]:
    path.write_text(text, encoding="utf-8")
    summary = import_trace(lake, str(path), drain=drain)
    rows = lake.read("events", EVENTS).orderBy("seq").collect()
    return summary, [row.asDict() for row in rows]


def expected(messages: list[tuple[int, Message]], drain: Drain) -> list[tuple[Any, ...]]:
    """Compute the events with simple loops: (µs, kind, line, endpoint, depth on arrival)."""
    steps = []
    for line, (_, target, at_us, _) in messages:
        if drain == NEXT_ACTIVITY:
            later = [one[2] for _, one in messages if one[0] == target and one[2] > at_us]
            read_us = min(later, default=None)
        else:
            read_us = at_us + round(float(drain) * 1_000_000)
        steps.append(((at_us, 1, line, 0), "accepted", target))
        if read_us is not None:
            turn = 1 if read_us == at_us else 0
            steps.append(((read_us, turn, line, 1), "leased", target))
            steps.append(((read_us, turn, line, 2), "acked", target))
    depths: Counter[str] = Counter()
    events = []
    for (at_us, _, line, _), kind, target in sorted(steps):
        depth = depths[target] if kind == "accepted" else None
        depths[target] += {"accepted": 1, "acked": -1}.get(kind, 0)
        events.append((at_us, kind, f"t-{line}", f"trace.{target}", depth))
    return events


def random_messages(seed: int, count: int) -> list[tuple[int, Message]]:
    """Return messages of few names at few times, so that many coincide; three days, unsorted."""
    rng = random.Random(seed)
    people = [f"p{number}" for number in range(6)]
    messages: list[tuple[int, Message]] = []
    for line in range(2, count + 2):
        at_us = 1_700_000_000_000_000 + rng.randrange(40) * 6_500_000_000
        messages.append((line, (rng.choice(people), rng.choice(people), at_us, rng.randrange(99))))
    return messages


@pytest.mark.parametrize("drain", [NEXT_ACTIVITY, 6500.0, 0.0])
def test_a_trace_gives_the_same_events_as_a_simple_program(
    lake: Lake, tmp_path: Path, drain: Drain
) -> None:
    messages = random_messages(seed=11, count=150)
    lines = [f"{a} {b} {at / 1e6:.6f} {size}" for _, (a, b, at, size) in messages]
    text = "\n".join(["src dst time size", *lines]) + "\n"
    summary, rows = import_text(lake, text, tmp_path / "people.txt", drain)

    assert [row["seq"] for row in rows] == list(range(1, len(rows) + 1))
    assert {row["relay"] for row in rows} == {"people"}
    traffic = [row for row in rows if row["kind"] in ("accepted", "leased", "acked")]
    assert [
        (row["at_us"], row["kind"], row["id"], row["endpoint"], row["depth"]) for row in traffic
    ] == expected(messages, drain)
    sizes = {row["id"]: row["size"] for row in traffic if row["kind"] == "accepted"}
    assert sizes == {f"t-{line}": one[3] for line, one in messages}
    assert summary.events == len(rows) == lake.manifest.relays["people"][1].last_seq
    assert (summary.messages, summary.bad_lines) == (150, 0)
    assert summary.read == sum(row["kind"] == "acked" for row in rows)


def test_a_trace_starts_with_settings_without_limits(lake: Lake, tmp_path: Path) -> None:
    text = "# a comment\n\nann, bob@work.org, 1082040961\nbob@work.org,ann,1082040962.5\n"
    summary, rows = import_text(lake, text, tmp_path / "office mail.csv")

    assert (summary.relay, summary.senders, summary.recipients) == ("office-mail", 2, 2)
    settings = merge_settings(Settings(), rows[0]["settings"].encode())
    limits = (settings.rate_limit, settings.circuit_breaker, settings.backpressure, settings.qos)
    assert [row["kind"] for row in rows[:3]] == ["settings", "endpoint", "endpoint"]
    assert not any(limit.enabled for limit in limits)
    assert [row["endpoint"] for row in rows[1:3]] == ["trace.ann", "trace.bob_work_org"]
    first = rows[3]
    assert (first["id"], first["at_us"], first["size"]) == ("t-3", 1_082_040_961_000_000, 1024)
    assert (first["sender"], first["endpoint"]) == ("trace.ann", "trace.bob_work_org")
    assert (first["hop_count"], first["max_hops"], first["call_budget_remaining"]) == (0, 5, 10)
    assert first["ttl_ms"] - first["at_us"] // 1000 == 10 * 365 * 86_400_000
    assert [row["kind"] for row in rows[4:]] == ["leased", "acked", "accepted"]
    assert {row["at_us"] for row in rows[4:]} == {1_082_040_962_500_000}


def test_a_trace_is_imported_with_few_queries(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    path = tmp_path / "few.txt"
    path.write_text("a b 1\nb a 2\n", encoding="utf-8")
    with counted_queries(spark) as asked:
        import_trace(lake, str(path))
    # What is in the file, then the events.
    assert asked.queries == 2


def test_names_that_become_the_same_subject_are_counted(lake: Lake, tmp_path: Path) -> None:
    summary, _ = import_text(lake, "a.b x 1\na_b x 2\na:b a.b 3\n", tmp_path / "t.txt")
    assert (summary.merged, summary.senders) == (2, 1)


def test_a_trace_is_not_imported_twice(lake: Lake, tmp_path: Path) -> None:
    import_text(lake, "a b 1\n", tmp_path / "once.txt")
    version = lake.manifest.version
    with pytest.raises(LakeUnusable, match="already holds relay 'once'"):
        import_trace(lake, str(tmp_path / "once.txt"))
    assert lake.manifest.version == version
    assert lake.read("events", EVENTS).count() == 3


def test_a_few_bad_lines_are_reported_and_skipped(lake: Lake, tmp_path: Path) -> None:
    lines = [f"a b {number}" for number in range(300)]
    lines[40:40] = ["a b yesterday", "a b"]
    summary, rows = import_text(lake, "\n".join(lines), tmp_path / "nearly.txt")
    assert (summary.messages, summary.bad_lines) == (300, 2)
    assert summary.bad_examples == ["line 41: a b yesterday", "line 42: a b"]
    assert {"t-41", "t-42"}.isdisjoint(row["id"] for row in rows)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("src dst time\na b 1\na b\na b -3\na b 1 -1\na b 1 2 3\n", "4 of 5 lines"),
        ("a b 1\na b 1082040961000\n", "line 2: a b 1082040961000"),
        ("src dst time\n", "no messages"),
    ],
)
def test_a_file_with_many_bad_lines_is_rejected(
    lake: Lake, tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(BadTrace, match=words):
        import_text(lake, text, tmp_path / "bad.txt")
    assert not lake.manifest.relays


def test_line_numbers_do_not_depend_on_file_blocks(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    spark.conf.set("spark.sql.files.maxPartitionBytes", "512")
    spark.conf.set("spark.sql.files.openCostInBytes", "1")
    try:
        lines = [f"a{number} b {number}" for number in range(400)]
        _, rows = import_text(lake, "\n".join(lines), tmp_path / "cut.txt", drain=1.0)
    finally:
        spark.conf.unset("spark.sql.files.maxPartitionBytes")
        spark.conf.unset("spark.sql.files.openCostInBytes")
    arrived = [(row["sender"], row["id"]) for row in rows if row["kind"] == "accepted"]
    assert arrived == [(f"trace.a{number}", f"t-{number + 1}") for number in range(400)]


def test_a_missing_trace_file_is_an_error(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(BadTrace, match="no such file"):
        import_trace(lake, str(tmp_path / "nowhere.txt"))


@pytest.mark.parametrize("drain", ["soon", -1.0, float("nan")])
def test_an_invalid_drain_is_rejected(lake: Lake, drain: Drain) -> None:
    with pytest.raises(BadTrace, match="drain must be seconds"):
        import_trace(lake, "any.txt", drain=drain)
