"""What an operator should look at: a ranked list, from statistics that a relay has anyway.

Rule 1  Each finding has a sentence, advice, a command and a link: nothing is reported that cannot
        be acted on.
Rule 2  Kinds come in the order of `FindingKind`, the worst of a kind first. Of each kind at most
        `EACH_MAX` are listed, so that many of one hide no other; the last one counts the rest.
Rule 3  Pure: the same facts are the same findings, of a running relay or of its files.
"""

import heapq
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from waypost.policy.breakers import CLOSED, OPEN, CircuitState
from waypost.policy.reasons import WORDS, Reason
from waypost.policy.reserved_names import OPERATOR, RELAY
from waypost.wire.findings import FindingKind, OperatorFinding, SenderRejections

T = TypeVar("T")

EACH_MAX = 5
REJECTIONS_MIN = 20
"""A sender with fewer rejections in the last minutes made a mistake, it does not flood."""

AGE_MIN_US = 30 * 60_000_000
"""As in the alert on unacknowledged messages."""

DISK_SHARE_MIN = 0.05
DISK_FREE_MIN_BYTES = 10 * 1024**3
"""A disk is low when it has less than both: 5% of a small disk, 10 GiB of a large one."""


class InboxFacts(Protocol):
    """The counts of one inbox."""

    @property
    def subject(self) -> str: ...
    @property
    def pending(self) -> int: ...
    @property
    def scheduled(self) -> int: ...
    @property
    def leased(self) -> int: ...
    @property
    def pressure(self) -> float: ...
    @property
    def oldest_us(self) -> int | None: ...


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about a relay at `now_us`.

    `stuck` are agents and since when (µs); `disk` is free and total bytes. `served`: breakers can
    be reset, and agents be disconnected.
    """

    now_us: int
    inboxes: Sequence[InboxFacts]
    warning_at: float
    breakers: Mapping[str, CircuitState]
    stuck: Mapping[str, int] = {}
    rejections: Sequence[SenderRejections] = ()
    disk: tuple[int, int] | None = None
    full_because: str = ""
    served: bool = True


def what_to_look_at(facts: Facts) -> list[OperatorFinding]:
    """Return what needs an operator, the most urgent first; empty if nothing does."""
    return [
        *_storage(facts),
        *_full_inboxes(facts),
        *_breakers(facts),
        *_stuck_agents(facts),
        *_rejected_senders(facts),
        *_filling_inboxes(facts),
        *_old_messages(facts),
    ]


def _storage(facts: Facts) -> Iterator[OperatorFinding]:
    """Yield a full disk, or one that soon will be."""
    if facts.full_because:
        kind, text = FindingKind.STORAGE_FULL, f"Publishes are rejected: {facts.full_because}."
    elif facts.disk is not None and _is_low(*facts.disk):
        free, total = facts.disk
        kind = FindingKind.DISK_LOW
        text = f"The disk is nearly full: {_mib(free)} of {_mib(total)} are free."
    else:
        return
    yield OperatorFinding(
        kind=kind,
        text=text,
        advice="Free space on the relay's disk, or shorten housekeeping.journalRetentionMs.",
        command=["config", "show"],
        link="#/settings",
    )


def _is_low(free: int, total: int) -> bool:
    return free < min(total * DISK_SHARE_MIN, DISK_FREE_MIN_BYTES)


def _full_inboxes(facts: Facts) -> list[OperatorFinding]:
    full = [one for one in facts.inboxes if one.pressure >= 1]
    return _some(
        full,
        key=lambda one: (-one.pressure, one.subject),
        make=lambda one, rest: OperatorFinding(
            kind=FindingKind.INBOX_FULL,
            subject=one.subject,
            text=f"{one.subject} is full with {_messages(one)}: new ones are rejected{rest}.",
            advice="Let its agent acknowledge them, or raise reliability.backpressure.",
            command=["inbox", one.subject],
            link=_inbox_link(one.subject),
        ),
    )


def _filling_inboxes(facts: Facts) -> list[OperatorFinding]:
    filling = [one for one in facts.inboxes if facts.warning_at <= one.pressure < 1]
    return _some(
        filling,
        key=lambda one: (-one.pressure, one.subject),
        make=lambda one, rest: OperatorFinding(
            kind=FindingKind.INBOX_FILLING,
            subject=one.subject,
            text=f"{one.subject} is {one.pressure:.0%} full with {_messages(one)}{rest}.",
            advice="Check that its agent is connected and acknowledges.",
            command=["inbox", one.subject],
            link=_inbox_link(one.subject),
        ),
    )


def _breakers(facts: Facts) -> list[OperatorFinding]:
    def make(one: tuple[str, CircuitState], rest: str) -> OperatorFinding:
        endpoint, state = one
        is_open = state is OPEN
        does = "is open: its messages are rejected" if is_open else "admits probes only"
        return OperatorFinding(
            kind=FindingKind.BREAKER_OPEN,
            subject=endpoint,
            text=f"The circuit breaker of {endpoint} {does}{rest}.",
            advice="Repair what handles its messages, then reset the breaker"
            + ("." if facts.served else " at the relay's URL."),
            command=["breakers", "reset", endpoint] if facts.served else ["breakers", "list"],
            link="#/breakers",
        )

    not_closed = [item for item in facts.breakers.items() if item[1] is not CLOSED]
    return _some(not_closed, key=lambda item: (item[1] is not OPEN, item[0]), make=make)


def _stuck_agents(facts: Facts) -> list[OperatorFinding]:
    return _some(
        list(facts.stuck.items()),
        key=lambda item: (item[1], item[0]),
        make=lambda item, rest: OperatorFinding(
            kind=FindingKind.AGENT_STUCK,
            subject=item[0],
            text=(
                f"{item[0]} is connected, but has acknowledged nothing for"
                f" {_age(facts.now_us - item[1])}{rest}."
            ),
            advice="Restart it; disconnecting it lets another program take its mailbox.",
            command=["agents", "disconnect", item[0]],
            link="#/agents",
        ),
    )


def _rejected_senders(facts: Facts) -> list[OperatorFinding]:
    def make(one: SenderRejections, rest: str) -> OperatorFinding:
        most = sorted(one.reasons.items(), key=lambda item: (-item[1], item[0]))
        reasons = ", ".join(f"{WORDS.get(reason, reason)} {count:,}" for reason, count in most)
        return OperatorFinding(
            kind=FindingKind.SENDER_REJECTED,
            subject=one.sender,
            text=f"{one.sender} had {one.total:,} messages rejected lately: {reasons}{rest}.",
            advice=f"{_SENDER_ADVICE.get(most[0][0], _SLOW_DOWN)} To silence it, deny it.",
            command=["rules", "add", "deny", one.sender, ">"],
            link="#/messages?" + urlencode({"sender": one.sender, "outcome": "rejected"}),
        )

    flooding = [
        one
        for one in facts.rejections
        if one.sender not in _NO_SENDER and one.total >= REJECTIONS_MIN
    ]
    return _some(flooding, key=lambda one: (-one.total, one.sender), make=make)


_NO_SENDER = ("", OPERATOR, RELAY)
"""Senders that are not listed, and those that an operator does not deny."""

_SLOW_DOWN = "It sends too fast: ask its owner to slow it down."
_SENDER_ADVICE: Mapping[str, str] = {
    Reason.ACCESS_DENIED: "Access rules forbid it: allow it, or ask its owner to stop.",
    Reason.BACKPRESSURE: "It sends to a full inbox: see which one.",
    Reason.QUOTA_EXCEEDED: "Its recipients do not read it: ask its owner to slow it down.",
    Reason.CIRCUIT_OPEN: "It sends to an endpoint that fails: see which one.",
    Reason.BUDGET_EXCEEDED: "Its messages go round in circles, or too far: see their history.",
}


def _old_messages(facts: Facts) -> Iterator[OperatorFinding]:
    """Yield the oldest message: its age grows until it is acknowledged."""
    old = [
        (one.oldest_us, one.subject)
        for one in facts.inboxes
        if one.oldest_us is not None and facts.now_us - one.oldest_us >= AGE_MIN_US
    ]
    if not old:
        return
    oldest_us, subject = min(old)
    more = len(old) - 1
    have = "inbox has" if more == 1 else "inboxes have"
    others = f", and {more:,} more {have} old ones" if more else ""
    yield OperatorFinding(
        kind=FindingKind.MESSAGES_OLD,
        subject=subject,
        text=f"{subject} has had a message for {_age(facts.now_us - oldest_us)}{others}.",
        advice="Start its agent: it is offline, too slow, or keeps the message.",
        command=["inbox", subject],
        link=_inbox_link(subject),
    )


def _some(
    items: list[T], key: Callable[[T], Any], make: Callable[[T, str], OperatorFinding]
) -> list[OperatorFinding]:
    """Return findings on the first `EACH_MAX` items; the last text counts the others."""
    shown = heapq.nsmallest(EACH_MAX, items, key=key)
    hidden = len(items) - len(shown)
    rests = [""] * (len(shown) - 1) + [f"; {hidden:,} more are like it" if hidden else ""]
    return [make(one, rest) for one, rest in zip(shown, rests, strict=False)]


def _inbox_link(subject: str) -> str:
    return f"#/inboxes/{quote(subject, safe='')}"


def _messages(inbox: InboxFacts) -> str:
    count = inbox.pending + inbox.scheduled + inbox.leased
    return f"{count:,} message" if count == 1 else f"{count:,} messages"


def _age(age_us: int) -> str:
    """Format an age in its largest unit."""
    seconds = max(age_us, 0) // 1_000_000
    for unit, size in (("days", 2 * 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // (86_400 if unit == 'days' else size):,} {unit}"
    return f"{seconds} s"


def _mib(size: int) -> str:
    """Format a size in GiB, or in MiB if it is smaller."""
    return f"{size / 1024**3:,.1f} GiB" if size >= 1024**3 else f"{size / 1024**2:,.0f} MiB"
