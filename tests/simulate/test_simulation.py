"""Properties of every simulation, whatever its scenario."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.simulate.journals import decisions, events, publishes, rejected, run
from waypost.relay.data_dir import DataDir
from waypost.relay.verify.verify import verify
from waypost.simulate import SCENARIOS, Summary
from waypost.simulate.options import START_US

HOUR_US = 3_600_000_000


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_exactly_the_requested_messages_are_published(tmp_path: Path, scenario: str) -> None:
    summary = run(tmp_path / "data", scenario, 700)
    assert summary.messages == publishes(tmp_path / "data") == 700


@pytest.mark.parametrize("messages", [1, 9, 101])
def test_few_messages_are_enough(tmp_path: Path, messages: int) -> None:
    run(tmp_path / "data", messages=messages)
    assert publishes(tmp_path / "data") == messages


def test_a_flood_of_rejections_is_counted_in_full(tmp_path: Path) -> None:
    run(tmp_path / "data", "flood", 12_000)
    rejections = rejected(tmp_path / "data", "rate_limited")
    assert max(one.get("count", 1) for one in rejections) > 1
    assert publishes(tmp_path / "data") == 12_000


def test_the_journal_is_sealed(mixed: Path) -> None:
    suffixes = {path.suffix for path in (mixed / "journal").iterdir() if path.name != "ballast"}
    assert suffixes == {".jsonl", ".bodies"}


def test_the_directory_is_in_order(mixed: Path) -> None:
    report = verify(DataDir(mixed))
    assert report.findings == []
    assert report.ok


def test_a_relay_opened_there_later_has_the_same_limits(mixed: Path) -> None:
    [recorded] = events(mixed, "settings")
    written = json.loads((mixed / "config.json").read_bytes())
    assert written["qos"]["inboxMaxBytes"] == 128 * 1024
    assert written.items() <= recorded["settings"].items()
    assert "durability" not in written


def test_the_same_arguments_give_the_same_decisions(tmp_path: Path, mixed: Path) -> None:
    run(tmp_path / "again")
    assert decisions(tmp_path / "again") == decisions(mixed)


def test_another_seed_gives_other_decisions(tmp_path: Path, mixed: Path) -> None:
    run(tmp_path / "other", seed=8)
    assert decisions(tmp_path / "other") != decisions(mixed)


def test_time_never_goes_back(mixed: Path) -> None:
    instants = [one["at_us"] for one in events(mixed)]
    assert all(before <= after for before, after in pairwise(instants))


def test_traffic_is_spread_over_the_days(tmp_path: Path) -> None:
    run(tmp_path / "data", "conversations", 600, days=3)
    arrivals = events(tmp_path / "data", "accepted")
    days = Counter((one["at_us"] - START_US) // (24 * HOUR_US) for one in arrivals)
    assert set(days) == {0, 1, 2}
    assert min(days.values()) > 150


def test_everything_happens_within_the_requested_days(mixed: Path) -> None:
    assert events(mixed)[0]["at_us"] == START_US
    assert START_US + 47 * HOUR_US < events(mixed)[-1]["at_us"] < START_US + 48 * HOUR_US


def test_there_is_less_traffic_at_night(tmp_path: Path) -> None:
    run(tmp_path / "data", "conversations", 600)
    hours = [one["at_us"] // HOUR_US % 24 for one in events(tmp_path / "data", "accepted")]
    afternoon = sum(12 <= hour < 18 for hour in hours)
    night = sum(hour < 6 for hour in hours)
    assert afternoon > 3 * night > 0


def test_there_are_as_many_agents_as_requested(mixed: Path) -> None:
    assert len(events(mixed, "endpoint")) == 40


def test_most_payloads_are_small_and_a_few_are_in_body_files(mixed: Path) -> None:
    stored = [one for one in events(mixed, "accepted") if one.get("endpoint")]
    large = sum("body" in one for one in stored)
    assert 0 < large < len(stored) / 20
    sizes = sorted(one["size"] for one in stored)
    assert sizes[0] < 400 < sizes[len(sizes) // 2] < 1000 < sizes[-1]


def test_the_summary_matches_the_journal(simulated: tuple[Path, Summary]) -> None:
    data, summary = simulated
    found = Counter(one["kind"] for one in events(data))
    reasons: Counter[str] = Counter()
    for one in events(data, "rejected"):
        reasons[one["reason"]] += one.get("count", 1)
    assert summary.accepted == found["accepted"]
    assert summary.rejected == reasons
    for kind in ("leased", "acked", "returned", "failed", "evicted", "redriven"):
        assert summary.events[kind] == found[kind]


def test_progress_is_reported_up_to_the_last_message(tmp_path: Path) -> None:
    from waypost.simulate import SimulationOptions, simulate

    reported: list[tuple[int, int]] = []
    options = SimulationOptions(messages=200, out=tmp_path / "data")
    simulate(options, lambda done, total: reported.append((done, total)))
    assert reported == sorted(reported)
    assert reported[-1] == (200, 200)
