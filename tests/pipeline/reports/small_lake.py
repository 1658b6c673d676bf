"""Tables written by hand, with few enough rows to know every result."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.lake.manifest import Manifest
from waypost.pipeline.tables.registry import TABLES

DAY = date(2026, 1, 3)
START = datetime(2026, 1, 3, 14, 0, tzinfo=UTC)
START_MS = int(START.timestamp() * 1000)
MINUTE_MS = 60_000
HOSTILE = '<script>alert(1)</script> & "so" on\x1b[31m'


def at(minutes: float) -> datetime:
    """Return the time `minutes` after the first arrival."""
    return START + timedelta(minutes=minutes)


def at_ms(minutes: float) -> int:
    """Return the same time in milliseconds since the epoch."""
    return START_MS + round(minutes * MINUTE_MS)


class LakeInMemory(Lake):
    """A lake in memory: writing it would take most of the test's time."""

    def __init__(self, spark: SparkSession, tables: Mapping[str, Sequence[dict[str, Any]]]) -> None:
        super().__init__(spark, "nowhere", Manifest(version=1, table_days={"traffic": [str(DAY)]}))
        self.frames = {
            name: spark.createDataFrame(as_rows(name, rows), TABLES[name])
            for name, rows in tables.items()
        }

    def read(self, table: str, schema: StructType, days: Iterable[str] | None = None) -> DataFrame:
        return self.frames[table].select(*schema.names)


def as_rows(table: str, rows: Sequence[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return the rows with all columns of their table, in order."""
    usual: dict[str, Any] = {"day": DAY, "relay": "north"}
    return [tuple({**usual, **row}.get(one) for one in TABLES[table].names) for row in rows]


def _message(minutes: float, wait_ms: float | None, tier: int, endpoint: str) -> dict[str, Any]:
    total_ms = None if wait_ms is None else wait_ms + 5
    return {
        "endpoint": endpoint,
        "arrived_at": at(minutes),
        "wait_ms": wait_ms,
        "total_ms": total_ms,
        "tier": tier,
    }


def _rejection(seq: int, reason: str, count: int = 1, **more: Any) -> dict[str, Any]:
    usual = {"at": at(3), "sender": "agent.flood", "endpoint": "", "tier": 1, "detail": reason}
    return {"seq": seq, "reason": reason, "count": count, **usual, **more}


def _traffic(
    minutes: float, relay: str, publishes: int, stored: int, rejected: int
) -> dict[str, Any]:
    return {
        "relay": relay,
        "minute": at(minutes),
        "publishes": publishes,
        "stored": stored,
        "rejected": rejected,
        "unclaimed": publishes - stored - rejected,
        "acked": stored,
        "failed": 0,
        "bytes": 100 * stored,
    }


def _pressure(minutes: float, endpoint: str, pressure: float) -> dict[str, Any]:
    depth = round(pressure * 100)
    return {
        "endpoint": endpoint,
        "minute": at(minutes),
        "depth_peak": depth,
        "depth_max": 100,
        "pressure": pressure,
    }


def _pair(
    endpoint: str, sender: str, arrivals: int, rejected: int, tier: int, last: float
) -> dict[str, Any]:
    return {
        "endpoint": endpoint,
        "sender": sender,
        "arrivals": arrivals,
        "rejected": rejected,
        "last_tier": tier,
        "last_at": at(last),
    }


def _move(
    seq: int, minutes: float, before: str, after: str, lasted_ms: float | None
) -> dict[str, Any]:
    return {
        "seq": seq,
        "at": at(minutes),
        "endpoint": "agent.a",
        "before": before,
        "after": after,
        "lasted_ms": lasted_ms,
    }


SMALL: dict[str, Sequence[dict[str, Any]]] = {
    "traffic": [
        _traffic(0, "north", 5, 4, 0),
        _traffic(3, "north", 60, 1, 58),
        _traffic(3, "south", 7, 6, 1),
        _traffic(59, "north", 2, 2, 0),
    ],
    "messages": [
        *(_message(0, float(wait), 3, "agent.a") for wait in range(1, 101)),
        _message(7, 4_000.0, 1, "agent.b"),
        {**_message(59, None, 1, "agent.b"), "state": "pending"},
    ],
    "rejections": [
        _rejection(1, "rate_limited", 50, detail="older", at=at(2)),
        _rejection(2, "rate_limited", 5, detail=HOSTILE),
        _rejection(3, "backpressure", endpoint="agent.a", sender="agent.web", tier=3),
        _rejection(4, "backpressure", endpoint="agent.b", tier=1),
        _rejection(5, "budget_exceeded", endpoint="agent.a", tier=1, sender="agent.web"),
    ],
    "pressure": [
        _pressure(0, "agent.a", 0.5),
        _pressure(3, "agent.a", 0.8),
        _pressure(4, "agent.a", 0.95),
        _pressure(5, "agent.a", 0.95),
        _pressure(3, "agent.b", 0.1),
    ],
    "senders": [
        {
            "sender": sender,
            "publishes": publishes,
            "stored": publishes - 1,
            "rejected": 1,
            "answers": 2,
            "bytes": 1_000,
            "busiest_minute": 4,
        }
        for sender, publishes in (("agent.web", 9), ("agent.flood", 65))
    ],
    "inboxes": [{"endpoint": "agent.a"}, {"endpoint": "agent.b"}],
    "pairs": [
        _pair("agent.a", "agent.web", 6, 2, 2, 1),
        {**_pair("agent.a", "agent.web", 4, 0, 3, 1500), "day": DAY + timedelta(days=1)},
        *(_pair("agent.a", f"agent.s{index}", 1, 0, 1, 1) for index in range(6)),
        _pair("agent.b", "agent.flood", 3, 3, 1, 2),
    ],
    "breakers": [
        _move(1, 10, "CLOSED", "OPEN", 30_000.0),
        _move(2, 10.5, "OPEN", "HALF_OPEN", 1_000.0),
        _move(3, 10 + 31 / 60, "HALF_OPEN", "CLOSED", None),
        {**_move(4, 50, "CLOSED", "OPEN", None), "endpoint": "agent.b"},
    ],
    "dead_letters": [
        {
            "endpoint": endpoint,
            "reason": reason,
            "letters": messages,
            "redriven": 1,
            "purged": 0,
            "waiting": messages - 1,
            "first_at": at(1),
            "last_at": at(2),
        }
        for endpoint, reason, messages in (
            ("agent.a", HOSTILE, 4),
            ("agent.b", HOSTILE, 2),
            ("agent.b", "time to live is over", 3),
        )
    ],
    "loops": [
        {
            "endpoint": "agent.b",
            "chain": ["agent.b", "agent.c", "agent.b"],
            "times": times,
            "senders": 1,
            "first_at": at(1),
            "last_at": at(2 + times),
            "day": DAY + timedelta(days=days),
        }
        for days, times in ((0, 14), (1, 3))
    ],
    "anomalies": [
        {
            "sender": "agent.flood",
            "kind": "flood",
            "observed": observed,
            "expected": 1.0,
            "why": f"was rejected {observed:.0f} times",
            "day": DAY + timedelta(days=days),
        }
        for days, observed in ((0, 20.0), (1, 55.0))
    ],
    "sessions": [
        {
            "subject": subject,
            "connected_at": at(minutes),
            "disconnected_at": at(minutes + lasted) if lasted else None,
            "lasted_ms": lasted * 60_000.0 if lasted else None,
        }
        for subject, minutes, lasted in (("agent.a", 1, 2), ("agent.a", 5, 4), ("agent.b", 6, 0))
    ],
}
