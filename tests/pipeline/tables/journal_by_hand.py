"""A journal written by hand: every rare case, on four days.

The first three days are one segment, the fourth is another, so that it can be ingested later. The
tests contain the expected result for each message.
"""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from waypost.policy.breakers import CircuitState
from waypost.policy.budgets import Budget
from waypost.policy.reasons import Reason
from waypost.wire import events

MINUTE_US = 60_000_000
ANSWER = {"parent": "plain", "thread": "plain", "answer": True}


def at(day: int, clock: str) -> int:
    """Return a time in January 2026, in µs."""
    moment = datetime.fromisoformat(f"2026-01-{day:02} {clock}").replace(tzinfo=UTC)
    return int(moment.timestamp()) * 1_000_000


def _arrival(
    kind: type[Any], at_us: int, message_id: str, sender: str, endpoint: str, **more: Any
) -> Any:
    more.setdefault("budget", Budget(ttl=at_us // 1000 + 3_600_000))
    more.setdefault("subject", endpoint)
    return kind(
        at_us=at_us, id=message_id, sender=sender, endpoint=endpoint, size=100, depth_max=10, **more
    )


def _accepted(at_us: int, message_id: str, sender: str, endpoint: str, **more: Any) -> Any:
    return _arrival(events.Accepted, at_us, message_id, sender, endpoint, **more)


def _looped(at_us: int, message_id: str, chain: tuple[str, ...], endpoint: str) -> Any:
    budget = Budget(ttl=at_us // 1000 + 3_600_000, ancestor_chain=chain, hop_count=len(chain))
    return _arrival(
        events.Rejected,
        at_us,
        message_id,
        "agent.c",
        endpoint,
        budget=budget,
        chosen_id=True,
        reason=Reason.BUDGET_EXCEEDED,
        detail=f"cycle detected: {endpoint} already in chain",
    )


def _about(kind: type[Any], at_us: int, message_id: str, endpoint: str, **more: Any) -> Any:
    return kind(at_us=at_us, id=message_id, endpoint=endpoint, **more)


def _first_day() -> list[Any]:
    moved = events.BreakerMoved
    closed, opened = CircuitState.CLOSED, CircuitState.OPEN
    rejection = {"reason": Reason.RATE_LIMITED, "detail": "too many", "rate_limit": 100}
    return [
        events.SessionChanged(at_us=at(1, "08:00:00"), subject="agent.a", action="connected"),
        _accepted(at(1, "09:00:00"), "plain", "agent.a", "agent.b", tier=2),
        _about(events.Leased, at(1, "09:00:02"), "plain", "agent.b"),
        _about(events.Returned, at(1, "09:00:03"), "plain", "agent.b", reason="nack"),
        _about(events.Leased, at(1, "09:00:05"), "plain", "agent.b", attempt=2),
        _about(events.Leased, at(1, "09:00:08"), "plain", "agent.b", attempt=2, extended=True),
        _about(events.Acked, at(1, "09:00:10"), "plain", "agent.b"),
        _accepted(at(1, "09:01:00"), "wide", "agent.a", "agent.b", subject="agent.*", parts=2),
        _accepted(
            at(1, "09:01:00"), "wide", "agent.a", "agent.c", subject="agent.*", part=1, parts=2
        ),
        _about(events.Leased, at(1, "09:01:01"), "wide", "agent.b"),
        _about(events.Acked, at(1, "09:01:01"), "wide", "agent.b"),
        _about(events.Leased, at(1, "09:01:01"), "wide", "agent.c"),
        _about(events.Acked, at(1, "09:01:03"), "wide", "agent.c"),
        _accepted(at(1, "09:02:00"), "nobody", "agent.a", "", subject="agent.gone", parts=0),
        _accepted(at(1, "09:03:00"), "answer", "agent.b", "agent.a", tier=3, depth=5, **ANSWER),
        _about(events.Acked, at(1, "09:03:04"), "answer", "agent.a"),
        _accepted(at(1, "10:00:00"), "thrown", "agent.a", "agent.b"),
        _about(
            events.Evicted, at(1, "10:01:00"), "thrown", "agent.b", sender="agent.a", reason="room"
        ),
        _about(events.Expired, at(1, "10:02:00"), "thrown", "agent.b", was="dead", reason="purged"),
        moved(
            at_us=at(1, "11:00:00"), endpoint="agent.b", before=closed, after=opened, occasion="x"
        ),
        _arrival(
            events.Rejected,
            at(1, "12:10:00"),
            "",
            "agent.flood",
            "",
            subject="agent.b",
            since_us=at(1, "12:05:30"),
            count=300,
            **rejection,
        ),
        _looped(at(1, "13:00:00"), "again", ("agent.b", "agent.c"), "agent.b"),
        _looped(at(1, "13:00:01"), "once", ("agent.x", "agent.b", "agent.c"), "agent.b"),
        _about(events.Expired, at(1, "14:00:00"), "once", "agent.b", was="dead", reason="purged"),
        _accepted(at(1, "15:00:00"), "again", "agent.c", "agent.b", chosen_id=True),
        _about(events.Leased, at(1, "15:00:01"), "again", "agent.b"),
        _about(events.Acked, at(1, "15:00:02"), "again", "agent.b"),
        events.SessionChanged(at_us=at(1, "20:00:00"), subject="agent.b", action="connected"),
    ]


def _used_again() -> list[Any]:
    """Use ids again: one after its message has ended, one after a day that is not rebuilt."""
    first, second = at(1, "21:00:00"), at(1, "22:00:00")
    return [
        _accepted(first, "twice", "agent.c", "agent.b", chosen_id=True),
        _about(events.Leased, at(1, "21:00:01"), "twice", "agent.b"),
        _about(events.Acked, at(1, "21:00:04"), "twice", "agent.b"),
        _accepted(second, "twice", "agent.c", "agent.b", chosen_id=True),
        _about(events.Leased, at(1, "22:00:02"), "twice", "agent.b"),
        _resent(at(1, "23:00:00")),
    ]


def _resent(at_us: int) -> Any:
    return _accepted(at_us, "resent", "agent.c", "agent.b", chosen_id=True)


def _resent_message_ends() -> Any:
    return _about(events.Acked, at(2, "07:00:00"), "resent", "agent.b")


def _second_and_third_day() -> list[Any]:
    return [
        *_used_again(),
        _resent_message_ends(),
        events.SessionChanged(at_us=at(2, "08:00:00"), subject="agent.a", action="disconnected"),
        _looped(at(2, "09:00:00"), "late", ("agent.b",), "agent.b"),
        _accepted(at(3, "09:00:00"), "broken", "agent.a", "agent.c"),
        _about(events.Leased, at(3, "09:00:01"), "broken", "agent.c", via="handler"),
        _about(events.Failed, at(3, "09:00:02"), "broken", "agent.c", reason="handler failed"),
        _accepted(at(3, "10:00:00"), "slow", "agent.a", "agent.c"),
        _accepted(at(3, "11:00:00"), "soon", "agent.e", "agent.d", due_us=at(4, "09:00:00")),
        _accepted(at(3, "11:00:01"), "never", "agent.e", "agent.d", due_us=at(4, "09:00:00")),
        _accepted(at(3, "11:00:02"), "one day", "agent.e", "agent.d", due_us=at(9, "09:00:00")),
        _about(events.Cancelled, at(3, "11:30:00"), "never", "agent.d"),
    ]


def _fourth_day() -> list[Any]:
    closed, opened = CircuitState.CLOSED, CircuitState.OPEN
    return [
        events.BreakerMoved(
            at_us=at(4, "08:00:00"), endpoint="agent.d", before=closed, after=opened, occasion="x"
        ),
        events.SettingsChanged(at_us=at(4, "08:30:00"), cause="start", settings={}),
        _about(events.Queued, at(4, "09:00:00"), "soon", "agent.d"),
        _about(events.Leased, at(4, "09:00:02"), "soon", "agent.d"),
        _about(events.Acked, at(4, "09:00:05"), "soon", "agent.d"),
        events.BreakerMoved(
            at_us=at(4, "11:00:00"), endpoint="agent.b", before=opened, after=closed, occasion="y"
        ),
        _accepted(at(4, "12:00:00"), "late", "agent.c", "agent.b", chosen_id=True),
        _resent(at(4, "12:30:00")),
        _about(events.Redriven, at(4, "13:00:00"), "broken", "agent.c"),
        _about(events.Expired, at(4, "14:00:00"), "slow", "agent.c"),
        _about(events.Leased, at(4, "15:00:00"), "broken", "agent.c", attempt=2),
    ]


def write_first_part(data: Path) -> None:
    """Write the first three days."""
    _write_segment(data, 1, [*_first_day(), *_second_and_third_day()])


def write_second_part(data: Path) -> None:
    """Write the fourth day, as a second segment."""
    first_seq = len(_first_day()) + len(_second_and_third_day()) + 1
    _write_segment(data, first_seq, _fourth_day())


def write_message_with_end(data: Path) -> None:
    """Write a message that ends the day after it arrived, and nothing else."""
    _write_segment(data, 1, [_resent(at(1, "10:00:00")), _resent_message_ends()])


def write_message_of_same_id(data: Path) -> None:
    """Write the arrival of a message with the same id, on the day when the first one ended."""
    _write_segment(data, 3, [_resent(at(2, "10:30:00"))])


def _write_segment(data: Path, first_seq: int, lines: list[Any]) -> None:
    for seq, event in enumerate(lines, first_seq):
        event.seq = seq
    last = lines[-1]
    commit = events.Commit(seq=last.seq, at_us=last.at_us, count=len(lines), bytes=0, crc=0)
    journal = data / "journal"
    journal.mkdir(parents=True, exist_ok=True)
    text = b"\n".join(events.encode_event(line) for line in [*lines, commit])
    (journal / f"{first_seq:020}.jsonl").write_bytes(text + b"\n")
