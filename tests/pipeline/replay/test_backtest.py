"""The replay in Spark against the sequential one, on random histories of several relays."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.pipeline.replay.conftest import Recording
from tests.pipeline.replay.oracle import assert_agrees, replay_sequentially, without_depth_bytes
from tests.pipeline.replay.sequential import Decision
from waypost.pipeline.replay.backtest import backtest
from waypost.policy.errors import InvalidSettings

OFF = 18446744073709551615
"""The specification's largest number, which switches a limit off."""

CHANGES = {
    "tighter": {
        "reliability": {
            "rateLimit": {"maxPerWindow": 3, "windowSecs": 3, "perSenderOverrides": {"agent": 2}},
            "circuitBreaker": {"failureThreshold": 1, "cooldownMs": 5000},
            "backpressure": {"maxMailboxSize": 3},
        },
        "maxHops": 2,
    },
    "no limits except bytes": {
        "qos": {"inboxMaxBytes": 1200, "tier1": {"maxEnvelopes": 9, "maxBytes": 9000}},
        "reliability": {
            "rateLimit": {"enabled": False},
            "backpressure": {"enabled": False},
            "circuitBreaker": {"enabled": False},
        },
    },
    "tiers everywhere, with another window": {
        "qos": {"enabled": True, "bidirectionalWindowMs": 400, "tier1": {"maxEnvelopes": 1}},
    },
    "no tiers, longer rate windows, slower breakers": {
        "qos": {"enabled": False},
        "reliability": {
            "rateLimit": {"windowSecs": 9},
            "circuitBreaker": {"failureThreshold": 3, "halfOpenProbeCount": 2},
        },
        "housekeeping": {"breakerIdleMs": 4000},
        "maxHops": 4,
    },
    "only smaller mailboxes": {
        "reliability": {"backpressure": {"maxMailboxSize": 2}},
    },
    "a narrower fan-out": {"maxFanout": 2},
    "a wider fan-out, a smaller rate": {
        "maxFanout": 100,
        "reliability": {"rateLimit": {"maxPerWindow": 4}},
    },
    "a smaller share for strangers": {
        "qos": {"strangers": {"maxEnvelopes": 2, "maxBytes": 600}},
    },
    "room for messages of the relay": {
        "relayMessages": {"maxEnvelopes": 2, "maxBytes": 700},
        "reliability": {"backpressure": {"maxMailboxSize": 4}},
    },
    "no room for messages of the relay": {"relayMessages": None},
    "evictions by tier, with another window": {
        "qos": {
            "enabled": True,
            "overflow": "evict_least_known",
            "inboxMaxBytes": 1500,
            "bidirectionalWindowMs": 3000,
            "strangers": None,
        },
    },
    "evictions by weight only": {"qos": {"overflow": "evict_heaviest", "inboxMaxBytes": 1500}},
    "unlimited tiers": {
        "qos": {
            "enabled": True,
            "tier1": {"maxEnvelopes": OFF, "maxBytes": OFF},
            "tier2": {"maxEnvelopes": OFF},
            "tier3": {"maxBytes": OFF},
            "strangers": {"maxEnvelopes": OFF, "maxBytes": OFF},
        },
    },
    "reject instead of evict": {"qos": {"inboxMaxBytes": 2000, "overflow": "reject"}},
}


SPARK_SETTINGS = {
    # Keys span several Arrow batches, as in real lakes.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "29",
    # Code generation and adaptive planning cost more than they save on so few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(autouse=True, scope="module")
def spark_settings(recording: Recording) -> Iterator[None]:
    conf = recording.lake.spark.conf
    before = {name: conf.get(name) for name in SPARK_SETTINGS}
    for name, value in SPARK_SETTINGS.items():
        conf.set(name, value)
    yield
    for name, value in before.items():
        conf.set(name, value)


def read_decisions(recording: Recording, out: Path) -> dict[tuple[str, int], Decision]:
    rows = recording.lake.spark.read.parquet(str(out)).collect()
    assert len({(row.relay, row.seq) for row in rows}) == len(rows)
    for row in rows:
        assert row.changed == (row.old_reason != row.new_reason)
        assert (row.new == "accepted") == (row.new_reason is None)
    return {
        (row.relay, row.seq): Decision(
            seq=row.seq,
            sender=row.sender,
            endpoint=row.endpoint,
            tier=row.tier,
            old_reason=row.old_reason or "",
            new_reason=row.new_reason or "",
        )
        for row in rows
    }


@pytest.mark.parametrize("shortcut", [True, False])
def test_the_same_settings_give_no_difference_for_any_relay(
    recording: Recording, shortcut: bool
) -> None:
    result = backtest(recording.lake, shortcut=shortcut)
    assert result.messages > 1000
    assert result.differences == 0
    assert result.rejected == result.rejected_before
    assert len(result.rejected) == 6  # every limit was reached


@pytest.mark.parametrize("name", CHANGES)
def test_other_settings_agree_with_the_sequential_replay(
    recording: Recording, name: str, tmp_path: Path
) -> None:
    changes = msgspec.json.encode(CHANGES[name])
    expected = replay_sequentially(recording, changes)
    result = backtest(recording.lake, changes, str(tmp_path / "out"))
    assert result.differences > 0
    assert_agrees(result, expected)
    found = read_decisions(recording, tmp_path / "out")
    assert {key: one for key, one in found.items() if one != expected.get(key)} == {}
    assert found.keys() == expected.keys()


def test_decisions_do_not_depend_on_the_shortcut(recording: Recording) -> None:
    changes = msgspec.json.encode(CHANGES["tighter"])
    result = backtest(recording.lake, changes, shortcut=False)
    assert_agrees(result, replay_sequentially(recording, changes))


@pytest.mark.parametrize("name", ["reject instead of evict", "no limits except bytes"])
def test_journals_without_depth_bytes_are_replayed_exactly(recording: Recording, name: str) -> None:
    changes = msgspec.json.encode(CHANGES[name])
    result = backtest(without_depth_bytes(recording.lake), changes)
    assert_agrees(result, replay_sequentially(recording, changes))


def test_unaffected_senders_and_endpoints_are_not_replayed(recording: Recording) -> None:
    scope = backtest(recording.lake).scope
    assert scope.senders > 50
    assert scope.endpoints > 30
    assert (scope.senders_replayed, scope.endpoints_replayed) == (0, 0)


def test_invalid_settings_are_rejected(recording: Recording) -> None:
    with pytest.raises(InvalidSettings):
        backtest(recording.lake, b'{"maxHops": 0}')
