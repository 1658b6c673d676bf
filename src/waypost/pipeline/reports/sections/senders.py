"""Who writes to whom, and how well they know each other."""

from waypost.pipeline.reports.charts.bars import Bar, Bars, draw_bars
from waypost.pipeline.reports.data import BusyInbox, Facts
from waypost.pipeline.reports.formatting import number, plural, share, size
from waypost.pipeline.reports.sections.model import Figure, Section, Table, and_more, named

TIERS = {1: "unknown", 2: "acknowledged", 3: "active"}


def tiers_section(facts: Facts) -> Section:
    """How well senders and recipients knew each other, and what that changed."""
    title = "Tiers"
    tiers = facts.tiers
    if not tiers:
        return Section("tiers", title, "Nothing arrived at any inbox in this period.")
    arrivals = sum(one.arrivals for one in tiers)
    most = max(tiers, key=lambda one: one.arrivals)
    hardest = max(tiers, key=lambda one: one.rejected / max(1, one.arrivals))
    takeaway = (
        f"{share(most.arrivals, arrivals)} of arrivals at inboxes were from"
        f" {tier_words(most.tier)} senders."
    )
    if hardest.rejected:
        takeaway += (
            f" Refused most often were {tier_words(hardest.tier)} ones:"
            f" {share(hardest.rejected, hardest.arrivals)} of theirs."
        )
    bars = [
        Bar(
            f"tier {one.tier}, {tier_words(one.tier)}",
            [("stored", one.arrivals - one.rejected), ("refused", one.rejected)],
            f"{number(one.arrivals)}, {share(one.rejected, one.arrivals)} refused",
        )
        for one in tiers
    ]
    rows = [
        [
            f"{one.tier}, {tier_words(one.tier)}",
            *(number(one.arrivals), share(one.arrivals, arrivals)),
            *(number(one.rejected), share(one.rejected, one.arrivals)),
        ]
        for one in tiers
    ]
    columns = ["Tier", "Arrivals", "Of all", "Refused", "Refused of its own"]
    table = Table("Arrivals by tier", columns, rows, frozenset(columns[1:]))
    kinds = [("stored", "stored"), ("refused", "refused")]
    figure = Figure(
        "Arrivals at inboxes by tier",
        "A bar for each tier, made of stored and refused arrivals.",
        lambda look: draw_bars(look, Bars(bars, kinds=kinds)),
        table,
        "What was refused before it reached an inbox (rate limit, access) has no tier yet.",
    )
    return Section("tiers", title, takeaway, [figure], [table])


def tier_words(tier: int) -> str:
    """The name of a tier."""
    return TIERS.get(tier, "unjudged")


def senders_section(facts: Facts) -> Section:
    """Who writes, and to whom."""
    title = "Senders"
    senders = facts.senders
    if not senders.senders:
        return Section("senders", title, "Nobody published in this period.")
    first = senders.senders[0]
    takeaway = (
        f"The busiest sender was {named(facts, first.relay, first.sender)} with"
        f" {plural(first.publishes, 'publish', 'publishes')},"
        f" {share(first.publishes, facts.traffic.total.publishes)} of all."
    )
    count = len(senders.inboxes)
    note = (
        f"Shares of senders at the {plural(count, 'busiest inbox', 'busiest inboxes')} of"
        f" {number(count + senders.inboxes_more)}; hatched is refused. Tiers are those of the"
        " last arrival."
    )
    figures = [
        _inbox_figure(facts, one, "" if place else note)
        for place, one in enumerate(senders.inboxes)
    ]
    return Section("senders", title, takeaway, figures, [_senders_table(facts)])


def _inbox_figure(facts: Facts, inbox: BusyInbox, note: str) -> Figure:
    name = named(facts, inbox.relay, inbox.endpoint)
    rest = inbox.arrivals - sum(one.arrivals for one in inbox.senders)
    bars = [
        Bar(
            one.sender,
            [("stored", one.arrivals - one.rejected), ("refused", one.rejected)],
            f"{share(one.arrivals, inbox.arrivals)} {tier_words(one.tier)}",
        )
        for one in inbox.senders
    ]
    if inbox.more:
        bars.append(
            Bar(f"{number(inbox.more)} more", [("unclaimed", rest)], share(rest, inbox.arrivals))
        )
    return Figure(
        f"{name}: {plural(inbox.arrivals, 'arrival')}",
        f"A bar for each sender that wrote most to {name}: its share of all arrivals there.",
        lambda look: draw_bars(look, Bars(bars, whole=inbox.arrivals)),
        Table(
            f"Who wrote to {name}",
            ["Sender", "Tier", "Arrivals", "Share", "Refused"],
            [
                [
                    one.sender,
                    tier_words(one.tier),
                    number(one.arrivals),
                    share(one.arrivals, inbox.arrivals),
                    number(one.rejected),
                ]
                for one in inbox.senders
            ],
            frozenset({"Arrivals", "Share", "Refused"}),
            and_more(inbox.more, "sender"),
        ),
        note,
    )


def _senders_table(facts: Facts) -> Table:
    numbers = ["Publishes", "Stored", "Refused", "Answers", "Bytes", "Busiest minute"]
    rows = [
        [
            named(facts, one.relay, one.sender),
            *(number(value) for value in (one.publishes, one.stored, one.rejected, one.answers)),
            size(one.bytes),
            number(one.busiest_minute),
        ]
        for one in facts.senders.senders
    ]
    after = and_more(facts.senders.more, "sender")
    return Table("Who wrote most", ["Sender", *numbers], rows, frozenset(numbers), after)
