"""The report in a few sentences, and what to look at first."""

import msgspec

from waypost.pipeline.reports.data import Facts
from waypost.pipeline.reports.formatting import (
    at_minute,
    duration,
    instant,
    listed,
    number,
    plural,
    share,
)
from waypost.pipeline.reports.sections.incidents import KINDS, chain_in_short
from waypost.pipeline.reports.sections.model import named
from waypost.pipeline.reports.sections.traffic import reason_words

FINDINGS_MAX = 8
REJECTED_SHARE_NOTED = 0.05
OPEN_NOTED_MS = 60_000


class Finding(msgspec.Struct, frozen=True):
    """Something to look at: what it is in a word, what happened, and which section has more."""

    kind: str
    words: str
    anchor: str


class Tile(msgspec.Struct, frozen=True):
    """A number that stands for the whole period."""

    name: str
    value: str
    note: str = ""


def headline(facts: Facts) -> str:
    """Period, relays, messages, refusals and waiting times in words."""
    period = facts.period
    if period is None:
        return "This lake has no traffic to tell of yet."
    scope, traffic = facts.scope, facts.traffic
    relays = (
        f"relay {scope.relays[0]}"
        if len(scope.relays) == 1
        else plural(len(scope.relays) + scope.relays_more, "relay")
    )
    first_ms = max(period.first_ms, period.known_from_ms)
    said = (
        f"From {instant(first_ms)} to {instant(period.last_ms)} UTC, {relays} stored"
        f" {plural(traffic.total.stored, 'message')} of {plural(scope.senders, 'sender')} for"
        f" {plural(scope.inboxes, 'inbox', 'inboxes')}."
    )
    if traffic.total.rejected:
        said += f" {share(traffic.total.rejected, traffic.arrivals)} of all arrivals were refused."
    else:
        said += " Nothing was refused."
    wait = facts.latency.overall
    if wait.wait_p50_ms is not None and wait.wait_p95_ms is not None:
        said += (
            f" Half of the messages were handed out within {duration(wait.wait_p50_ms)},"
            f" 95% within {duration(wait.wait_p95_ms)}."
        )
    return said


def tiles(facts: Facts) -> list[Tile]:
    """The numbers people look for first."""
    traffic, wait = facts.traffic, facts.latency.overall
    relays = listed([*facts.scope.relays[:3]])
    hidden = len(facts.scope.relays) + facts.scope.relays_more - 3
    if hidden > 0:
        relays = f"{', '.join(facts.scope.relays[:3])} and {number(hidden)} more"
    return [
        Tile(
            "Messages stored", number(traffic.total.stored), f"on {plural(facts.scope.days, 'day')}"
        ),
        Tile(
            "Refused",
            share(traffic.total.rejected, traffic.arrivals),
            f"{number(traffic.total.rejected)} of {plural(traffic.arrivals, 'arrival')}",
        ),
        Tile("Wait, half within", _time(wait.wait_p50_ms), f"95% within {_time(wait.wait_p95_ms)}"),
        Tile(
            "Dead letters waiting",
            number(facts.dead_letters.waiting),
            f"of {number(facts.dead_letters.letters)}",
        ),
        Tile(
            "Inboxes",
            number(facts.scope.inboxes),
            f"written to by {plural(facts.scope.senders, 'sender')}",
        ),
        Tile("Relays", number(len(facts.scope.relays) + facts.scope.relays_more), relays),
    ]


def findings(facts: Facts) -> list[Finding]:
    """What stands out, loops and odd senders first; at most `FINDINGS_MAX`."""
    found = [*_loops(facts), *_anomalies(facts), *_troubles(facts)]
    return found[:FINDINGS_MAX]


def _loops(facts: Facts) -> list[Finding]:
    return [
        Finding(
            "loop",
            f"{named(facts, one.relay, chain_in_short(one))} came round"
            f" {plural(one.times, 'time')} and was stopped.",
            "loops",
        )
        for one in facts.oddities.loops[:2]
    ]


def _anomalies(facts: Facts) -> list[Finding]:
    told = [one for one in facts.oddities.anomalies if one.kind != "loop"]
    return [
        Finding(
            KINDS.get(one.kind, one.kind),
            f"{named(facts, one.relay, one.sender)} {one.why}.",
            "anomalies",
        )
        for one in told[:3]
    ]


def _troubles(facts: Facts) -> list[Finding]:
    found = []
    if facts.pressure.warned:
        first = facts.pressure.inboxes[0]
        found.append(
            Finding(
                "pressure",
                f"{plural(facts.pressure.warned, 'inbox', 'inboxes')} reached"
                f" {facts.pressure.warning_at:.0%} of the cap; fullest was"
                f" {named(facts, first.relay, first.endpoint)} ({first.peak:.0%} at"
                f" {at_minute(first.peak_ms)}).",
                "pressure",
            )
        )
    for breaker in facts.breakers.breakers[:1]:
        if breaker.open_ms >= OPEN_NOTED_MS:
            name = named(facts, breaker.relay, breaker.endpoint)
            words = f"{name} was cut off for {duration(breaker.open_ms)} in all."
            found.append(Finding("breaker", words, "breakers"))
    if facts.dead_letters.waiting:
        words = f"{plural(facts.dead_letters.waiting, 'dead letter')} wait for somebody to look."
        if facts.dead_letters.waiting == 1:
            words = "1 dead letter waits for somebody to look."
        found.append(Finding("dead letters", words, "dead-letters"))
    rejected = facts.traffic.total.rejected
    if rejected > REJECTED_SHARE_NOTED * facts.traffic.arrivals and facts.rejections.reasons:
        words = (
            f"{share(rejected, facts.traffic.arrivals)} of arrivals were refused, most for:"
            f" {reason_words(facts.rejections.reasons[0].reason)}."
        )
        found.append(Finding("refusals", words, "refusals"))
    return found


def _time(ms: float | None) -> str:
    return "–" if ms is None else duration(ms)
