"""What went wrong, and who was there: breakers, dead letters, loops, oddities, connections."""

from waypost.pipeline.reports.charts.bars import Bar, Bars, draw_bars
from waypost.pipeline.reports.charts.columns import Columns, Kind, draw_columns
from waypost.pipeline.reports.charts.timeline import Span, Timeline, TimelineRow, draw_timeline
from waypost.pipeline.reports.data import Facts
from waypost.pipeline.reports.formatting import day, duration, instant, number, plural, share, step
from waypost.pipeline.reports.incidents import Breaker, DeadLetters, Loop
from waypost.pipeline.reports.sections.model import (
    Figure,
    Section,
    Table,
    and_more,
    known_period,
    named,
)
from waypost.pipeline.reports.sections.traffic import fine_times

_STATES = {"OPEN": ("open", "open"), "HALF_OPEN": ("half-open", "half open")}
KINDS = {"flood": "flood", "one_way": "one way", "burst": "burst", "loop": "loop"}


def breakers_section(facts: Facts) -> Section:
    """Which endpoints were given a rest, and when."""
    title = "Circuit breakers"
    breakers = facts.breakers
    if not breakers.breakers:
        return Section("breakers", title, "No breaker opened in this period.")
    first = breakers.breakers[0]
    count = len(breakers.breakers) + breakers.more
    takeaway = (
        f"Breakers opened {plural(breakers.opened, 'time')} at"
        f" {plural(count, 'endpoint')}. Longest open was that of"
        f" {named(facts, first.relay, first.endpoint)}: {duration(first.open_ms)} in all."
    )
    columns = ["Endpoint", "Opened", "Open for", "Last state"]
    table = Table(
        "Breakers by time open",
        columns,
        [
            [
                named(facts, one.relay, one.endpoint),
                number(one.opened),
                duration(one.open_ms),
                _state(one.last_state),
            ]
            for one in breakers.breakers
        ],
        frozenset({"Opened", "Open for"}),
        and_more(breakers.more, "endpoint"),
    )
    return Section("breakers", title, takeaway, [_breakers_figure(facts)], [table])


def _breakers_figure(facts: Facts) -> Figure:
    rows = [_timeline_row(facts, one) for one in facts.breakers.breakers]
    hidden = sum(one.spans_more for one in facts.breakers.breakers)
    data = [
        [name.name, span.words, instant(span.from_ms), duration(span.to_ms - span.from_ms)]
        for name in rows
        for span in name.spans
    ]
    note = f"Only the longest spans are drawn; {number(hidden)} shorter ones are not."
    return Figure(
        "When breakers were open",
        "A row for each endpoint; a filled span is open, a hatched one half open.",
        lambda look: draw_timeline(look, Timeline(fine_times(facts), rows, [*_STATES.values()])),
        Table(
            "When breakers were open",
            ["Endpoint", "State", "From", "For"],
            data,
            frozenset({"For"}),
        ),
        note if hidden else "",
    )


def _timeline_row(facts: Facts, breaker: Breaker) -> TimelineRow:
    last_ms = known_period(facts).last_ms
    spans = [
        Span(one.from_ms, last_ms if one.to_ms is None else one.to_ms, *_STATES[one.state])
        for one in breaker.spans
        if one.state in _STATES
    ]
    return TimelineRow(
        named(facts, breaker.relay, breaker.endpoint), spans, duration(breaker.open_ms)
    )


def _state(state: str) -> str:
    return state.lower().replace("_", " ")


def dead_letters_section(facts: Facts) -> Section:
    """Messages that could not be delivered."""
    title = "Dead letters"
    dead = facts.dead_letters
    if not dead.letters:
        return Section("dead-letters", title, "There were no dead letters in this period.")
    first = dead.reasons[0]
    takeaway = (
        f"{plural(dead.letters, 'dead letter')}: {number(dead.waiting)} waiting for somebody to"
        f" look, {number(dead.redriven)} put back, {number(dead.purged)} purged. The most frequent"
        f" reason was “{first.reason}” ({share(first.letters, dead.letters)})."
    )
    figure = Figure(
        "Dead letters by reason",
        "A bar for each reason, made of letters still waiting and others.",
        lambda look: draw_bars(look, _dead_bars(dead)),
        _reasons_table(dead),
    )
    inboxes = Table(
        "Inboxes with most dead letters",
        ["Inbox", "Letters", "Waiting"],
        [
            [named(facts, one.relay, one.endpoint), number(one.letters), number(one.waiting)]
            for one in dead.inboxes
        ],
        frozenset({"Letters", "Waiting"}),
        and_more(dead.inboxes_more, "inbox", "inboxes"),
    )
    return Section("dead-letters", title, takeaway, [figure], [_reasons_table(dead), inboxes])


def _dead_bars(dead: DeadLetters) -> Bars:
    bars = [
        Bar(
            one.reason,
            [("refused", one.waiting), ("unclaimed", one.letters - one.waiting)],
            f"{number(one.letters)}, {number(one.waiting)} waiting",
        )
        for one in dead.reasons
    ]
    kinds = [("refused", "waiting"), ("unclaimed", "put back, purged or expired")]
    return Bars(bars, kinds=kinds)


def _reasons_table(dead: DeadLetters) -> Table:
    numbers = ["Letters", "Waiting", "Put back", "Purged", "Inboxes"]
    rows = [
        [
            one.reason,
            *map(number, (one.letters, one.waiting, one.redriven, one.purged, one.inboxes)),
            instant(one.last_ms),
        ]
        for one in dead.reasons
    ]
    after = and_more(dead.reasons_more, "reason")
    columns = ["Reason", *numbers, "Last"]
    return Table("Dead letters by reason", columns, rows, frozenset(numbers), after)


def loops_section(facts: Facts) -> Section:
    """Messages that came back to where they had been."""
    title = "Loops"
    loops = facts.oddities.loops
    if not loops:
        return Section("loops", title, "No message went round in a circle.")
    first = loops[0]
    takeaway = (
        f"{plural(len(loops) + facts.oddities.loops_more, 'loop')}. Most often stopped:"
        f" {chain_in_short(first)}, {plural(first.times, 'time')}."
    )
    table = Table(
        "Loops by how often they were stopped",
        ["Chain", "Stopped", "Senders", "First", "Last"],
        [
            [
                _with_relay(facts, one),
                number(one.times),
                number(one.senders),
                instant(one.first_ms),
                instant(one.last_ms),
            ]
            for one in loops
        ],
        frozenset({"Stopped", "Senders"}),
        and_more(facts.oddities.loops_more, "loop"),
    )
    return Section("loops", title, takeaway, [], [table])


def chain_words(loop: Loop) -> str:
    """a → b → a"""
    ends = loop.chain and loop.chain[-1] == loop.endpoint
    return " → ".join(loop.chain if ends else [*loop.chain, loop.endpoint])


def chain_in_short(loop: Loop) -> str:
    """a → b → … → a, if it is long."""
    chain = chain_words(loop).split(" → ")
    return " → ".join(chain if len(chain) <= 4 else [*chain[:2], "…", chain[-1]])


def _with_relay(facts: Facts, loop: Loop) -> str:
    return named(facts, loop.relay, chain_words(loop))


def anomalies_section(facts: Facts) -> Section:
    """Senders that did not behave as senders do."""
    title = "Senders that stand out"
    anomalies = facts.oddities.anomalies
    if not anomalies:
        return Section("anomalies", title, "No sender stood out.")
    count = len(anomalies) + facts.oddities.anomalies_more
    first = anomalies[0]
    takeaway = (
        f"{plural(count, 'case')}. Most striking: {named(facts, first.relay, first.sender)}"
        f" {first.why}."
    )
    table = Table(
        "Cases, each on its worst day",
        ["Sender", "Kind", "What happened", "Worst day", "Days"],
        [
            [
                named(facts, one.relay, one.sender),
                KINDS.get(one.kind, one.kind),
                one.why,
                day(one.worst_day_ms),
                number(one.days),
            ]
            for one in anomalies
        ],
        frozenset({"Days"}),
        and_more(facts.oddities.anomalies_more, "case"),
    )
    return Section("anomalies", title, takeaway, [], [table])


def connections_section(facts: Facts) -> Section:
    """Agents that came by WebSocket."""
    title = "Connections"
    found = facts.connections
    if not found.connections:
        return Section("connections", title, "No agent connected by WebSocket in this period.")
    agents = len(found.agents) + found.more
    takeaway = (
        f"{plural(found.connections, 'connection')} of {plural(agents, 'agent')};"
        f" {number(found.still)} had not ended."
    )
    if found.median_ms is not None:
        takeaway += f" Half of those that ended lasted at most {duration(found.median_ms)}."
    times = fine_times(facts)
    width = step(times.step_ms)
    connected = Kind("connected", "stored", {one.at_ms: one.connected for one in found.steps})
    figure = Figure(
        f"New connections per {width}",
        f"Columns for each {width}: how many agents connected.",
        lambda look: draw_columns(look, Columns(times, [connected])),
        Table(
            f"New connections per {width}",
            ["From", "Connected"],
            [[instant(one.at_ms), number(one.connected)] for one in found.steps],
            frozenset({"Connected"}),
        ),
    )
    table = Table(
        "Agents that connected most often",
        ["Agent", "Connections", "Connected for", "Not ended"],
        [
            [
                named(facts, one.relay, one.subject),
                number(one.connections),
                duration(one.connected_ms),
                number(one.still),
            ]
            for one in found.agents
        ],
        frozenset({"Connections", "Connected for", "Not ended"}),
        and_more(found.more, "agent"),
    )
    return Section("connections", title, takeaway, [figure], [table])
