"""Each scenario produces its events; the mixed one produces all of them."""

from collections import Counter
from pathlib import Path

import pytest

from tests.simulate.journals import events, rejected, run
from waypost.policy.settings import lint
from waypost.simulate import SCENARIOS
from waypost.simulate.options import quota_sizes, simulated_settings

REASONS = ("rate_limited", "quota_exceeded", "backpressure", "circuit_open", "budget_exceeded")
KINDS = ("leased", "acked", "returned", "failed", "expired", "evicted", "redriven", "breaker")


def transitions(data: Path) -> set[tuple[str, str]]:
    return {(one["before"], one["after"]) for one in events(data, "breaker")}


@pytest.mark.parametrize("seed", [1, 10, 13])
def test_a_mixed_run_has_every_rejection_and_every_kind_of_event(tmp_path: Path, seed: int) -> None:
    run(tmp_path / "data", seed=seed)
    found = {one["kind"] for one in events(tmp_path / "data")}
    reasons = {one["reason"] for one in events(tmp_path / "data", "rejected")}
    assert set(REASONS) <= reasons
    assert {*KINDS, "session"} <= found


def test_conversations_go_both_ways_and_answers_have_a_parent(tmp_path: Path) -> None:
    run(tmp_path / "data", "conversations", 400)
    arrivals = {one["id"]: one for one in events(tmp_path / "data", "accepted")}
    answers = [one for one in arrivals.values() if "parent" in one]
    assert len(answers) > 100
    for answer in answers:
        question = arrivals[answer["parent"]]
        assert (answer["sender"], answer["endpoint"]) == (question["endpoint"], question["sender"])
    assert {one.get("tier", 1) for one in arrivals.values()} == {1, 3}


def test_broadcasts_reach_many_with_one_publish(tmp_path: Path) -> None:
    run(tmp_path / "data", "broadcasts", 100)
    arrivals = events(tmp_path / "data", "accepted")
    copies = Counter(one["id"] for one in arrivals)
    assert len(copies) == 100
    assert max(copies.values()) >= 5
    patterns = {one["subject"] for one in arrivals}
    assert "agent.*.lead" in patterns
    assert "agent.team-0.>" in patterns


def test_a_flooder_is_stopped_by_its_rate_limit(tmp_path: Path) -> None:
    run(tmp_path / "data", "flood", 600)
    counted = rejected(tmp_path / "data", "rate_limited")
    assert len(counted) >= 150
    assert {one["sender"] for one in counted} == {"agent.wild.flooder-0"}


def test_a_slow_consumers_mailbox_fills_up(tmp_path: Path) -> None:
    run(tmp_path / "data", "slow-consumer", 600)
    full = rejected(tmp_path / "data", "backpressure")
    assert {(one["endpoint"], one["depth"]) for one in full} == {("agent.slow.archive-0", 150)}
    over = rejected(tmp_path / "data", "quota_exceeded")
    assert {one["quota_count"] for one in over} == {20}


def test_a_slow_consumer_loses_leases_that_time_out(tmp_path: Path) -> None:
    run(tmp_path / "data", "slow-consumer", 2000)
    reasons = {one["reason"] for one in events(tmp_path / "data", "returned")}
    assert reasons == {"lease timed out", "nack"}


def test_a_crashing_agent_opens_its_breaker_and_recovers(tmp_path: Path) -> None:
    run(tmp_path / "data", "crashes", 100)
    assert transitions(tmp_path / "data") == {
        ("CLOSED", "OPEN"),
        ("OPEN", "HALF_OPEN"),
        ("HALF_OPEN", "OPEN"),
        ("HALF_OPEN", "CLOSED"),
    }
    assert rejected(tmp_path / "data", "circuit_open")
    failures = {one["reason"] for one in events(tmp_path / "data", "failed")}
    assert failures == {"handler failed: ConnectionError: the database behind this agent is away"}


def test_loops_are_stopped_in_every_way_a_budget_can(tmp_path: Path) -> None:
    run(tmp_path / "data", "loops", 400)
    stops: dict[str, Counter[str]] = {"ring-0-3": Counter(), "ring-0-6": Counter()}
    for one in rejected(tmp_path / "data", "budget_exceeded"):
        reason = one["detail"].split(":")[0].split(" (")[0]
        stops[one["endpoint"].split(".")[1]][reason] += 1
    assert stops["ring-0-3"].most_common(1)[0][0] == "cycle detected"
    assert stops["ring-0-6"].most_common(1)[0][0] == "max hops exceeded"
    assert stops["ring-0-6"]["call budget exhausted"] > 0


def test_messages_to_an_offline_agent_are_stored_and_some_expire(tmp_path: Path) -> None:
    run(tmp_path / "data", "absences", 200)
    remote = {
        one["subject"]
        for one in events(tmp_path / "data", "session")
        if one["action"] == "disconnected" and one["subject"].startswith("agent.remote.")
    }
    assert remote == {"agent.remote.field-0", "agent.remote.field-1"}
    sent = {one["id"]: one["at_us"] for one in events(tmp_path / "data", "accepted")}
    read = {one["id"]: one["at_us"] for one in events(tmp_path / "data", "leased")}
    expired = {one["id"] for one in events(tmp_path / "data", "expired")}
    assert expired
    assert set(sent) == set(read) | expired
    assert max(read[one] - sent[one] for one in read) > 3_600_000_000


def test_an_inbox_that_runs_out_of_bytes_evicts(tmp_path: Path) -> None:
    run(tmp_path / "data", "overflow", 100)
    assert {one["endpoint"] for one in events(tmp_path / "data", "evicted")} == {
        "agent.bulk.store-0"
    }


def test_the_operator_redrives_some_dead_letters_and_purges_old_ones(tmp_path: Path) -> None:
    run(tmp_path / "data", "loops", 600)
    assert events(tmp_path / "data", "redriven")
    purged = [one for one in events(tmp_path / "data", "expired") if one.get("was") == "dead"]
    assert purged


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("messages", [1, 99, 12_345])
def test_quotas_add_up_to_all_messages(scenario: str, messages: int) -> None:
    sizes = quota_sizes(scenario, messages)
    assert sum(sizes.values()) == messages
    assert min(sizes.values()) >= 0


def test_the_simulated_settings_pass_the_lint() -> None:
    assert lint(simulated_settings(2 * 86_400_000_000)) == []
