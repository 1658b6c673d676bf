"""The replay in Spark against the obvious one, on random histories of many relays in one lake."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from tests.pipeline.replay.conftest import Past
from tests.pipeline.replay.oracle import Older, agrees, judged_plainly
from tests.pipeline.replay.sequential import Decision
from waypost.pipeline.replay.backtest import backtest
from waypost.policy.errors import InvalidSettings

OTHERS = {
    "tighter": {
        "reliability": {
            "rateLimit": {"maxPerWindow": 3, "windowSecs": 3, "perSenderOverrides": {"agent": 2}},
            "circuitBreaker": {"failureThreshold": 1, "cooldownMs": 5000},
            "backpressure": {"maxMailboxSize": 3},
        },
        "maxHops": 2,
    },
    "no limits but bytes": {
        "qos": {"inboxMaxBytes": 1200, "tier1": {"maxEnvelopes": 9, "maxBytes": 9000}},
        "reliability": {
            "rateLimit": {"enabled": False},
            "backpressure": {"enabled": False},
            "circuitBreaker": {"enabled": False},
        },
    },
    "tiers for all, of another window": {
        "qos": {"enabled": True, "bidirectionalWindowMs": 400, "tier1": {"maxEnvelopes": 1}},
    },
    "no tiers, longer rate windows, rarer breakers": {
        "qos": {"enabled": False},
        "reliability": {
            "rateLimit": {"windowSecs": 9},
            "circuitBreaker": {"failureThreshold": 3, "halfOpenProbeCount": 2},
        },
        "housekeeping": {"breakerIdleMs": 4000},
        "maxHops": 4,
    },
    "smaller mailboxes and nothing else": {
        "reliability": {"backpressure": {"maxMailboxSize": 2}},
    },
    "nothing is evicted": {"qos": {"inboxMaxBytes": 2000, "overflow": "reject"}},
}


TUNED = {
    # Keys go across batches of Arrow, as those of real lakes do.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "29",
    # Compiling and planning again costs more than it saves on so few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(autouse=True, scope="module")
def tuned(past: Past) -> Iterator[None]:
    conf = past.lake.spark.conf
    before = {name: conf.get(name) for name in TUNED}
    for name, value in TUNED.items():
        conf.set(name, value)
    yield
    for name, value in before.items():
        conf.set(name, value)


def written(past: Past, out: Path) -> dict[tuple[str, int], Decision]:
    rows = past.lake.spark.read.parquet(str(out)).collect()
    assert len({(row.relay, row.seq) for row in rows}) == len(rows)
    for row in rows:
        assert row.changed == (row.old_reason != row.new_reason)
        assert (row.new == "accepted") == (row.new_reason is None)
    return {
        (row.relay, row.seq): Decision(
            *(row.seq, row.sender, row.endpoint, row.tier),
            *(row.old_reason or "", row.new_reason or ""),
        )
        for row in rows
    }


@pytest.mark.parametrize("shortcut", [True, False])
def test_the_same_settings_give_no_difference_for_any_relay(past: Past, shortcut: bool) -> None:
    result = backtest(past.lake, shortcut=shortcut)
    assert result.messages > 1000
    assert result.differences == 0
    assert result.rejected == result.rejected_before
    assert len(result.rejected) == 5  # every limit was met


@pytest.mark.parametrize("name", OTHERS)
def test_other_settings_give_what_a_plain_replay_gives(
    past: Past, name: str, tmp_path: Path
) -> None:
    changes = msgspec.json.encode(OTHERS[name])
    expected = judged_plainly(past, changes)
    result = backtest(past.lake, changes, str(tmp_path / "out"))
    assert result.differences > 0
    agrees(result, expected)
    found = written(past, tmp_path / "out")
    assert {key: one for key, one in found.items() if one != expected.get(key)} == {}
    assert found.keys() == expected.keys()


def test_without_the_shortcut_nothing_else_is_decided(past: Past) -> None:
    changes = msgspec.json.encode(OTHERS["tighter"])
    agrees(backtest(past.lake, changes, shortcut=False), judged_plainly(past, changes))


@pytest.mark.parametrize("name", ["nothing is evicted", "no limits but bytes"])
def test_journals_that_do_not_tell_what_mailboxes_weigh_are_replayed_as_exactly(
    past: Past, name: str
) -> None:
    older = Older(past.lake.spark, past.lake.path, past.lake.manifest)
    changes = msgspec.json.encode(OTHERS[name])
    agrees(backtest(older, changes), judged_plainly(past, changes))


def test_who_cannot_be_touched_is_not_replayed(past: Past) -> None:
    scope = backtest(past.lake).scope
    assert scope.senders > 50
    assert scope.endpoints > 30
    assert (scope.senders_replayed, scope.endpoints_replayed) == (0, 0)


def test_settings_that_make_no_sense_are_rejected(past: Past) -> None:
    with pytest.raises(InvalidSettings):
        backtest(past.lake, b'{"maxHops": 0}')
