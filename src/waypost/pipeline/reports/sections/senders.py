"""Sections on senders: tiers, activity, and the senders of the busiest inboxes."""

from waypost.pipeline.reports.charts.bars import Bar, Bars, draw_bars
from waypost.pipeline.reports.data import BusyInbox, ReportData
from waypost.pipeline.reports.formatting import number, plural, share, size
from waypost.pipeline.reports.sections.model import (
    Figure,
    ReportTable,
    Section,
    omitted,
    qualified_name,
)

TIERS = {1: "unknown", 2: "acknowledged", 3: "active"}


def tiers_section(report: ReportData) -> Section:
    """Describe arrivals and rejections by tier."""
    title = "Tiers"
    tiers = report.tiers
    if not tiers:
        return Section("tiers", title, "Nothing arrived at any inbox in this period.")
    arrivals = sum(one.arrivals for one in tiers)
    most = max(tiers, key=lambda one: one.arrivals)
    hardest = max(tiers, key=lambda one: one.rejected / max(1, one.arrivals))
    takeaway = (
        f"{share(most.arrivals, arrivals)} of arrivals at inboxes were from"
        f" {tier_name(most.tier)} senders."
    )
    if hardest.rejected:
        takeaway += (
            f" The highest rejection rate was that of {tier_name(hardest.tier)} senders:"
            f" {share(hardest.rejected, hardest.arrivals)}."
        )
    bars = [
        Bar(
            f"tier {one.tier}, {tier_name(one.tier)}",
            [("stored", one.arrivals - one.rejected), ("rejected", one.rejected)],
            f"{number(one.arrivals)}, {share(one.rejected, one.arrivals)} rejected",
        )
        for one in tiers
    ]
    rows = [
        [
            f"{one.tier}, {tier_name(one.tier)}",
            number(one.arrivals),
            share(one.arrivals, arrivals),
            number(one.rejected),
            share(one.rejected, one.arrivals),
        ]
        for one in tiers
    ]
    columns = ["Tier", "Arrivals", "Share", "Rejected", "Rejection rate"]
    table = ReportTable("Arrivals by tier", columns, rows, frozenset(columns[1:]))
    kinds = [("stored", "stored"), ("rejected", "rejected")]
    figure = Figure(
        "Arrivals at inboxes by tier",
        "A bar for each tier: stored and rejected arrivals.",
        lambda canvas: draw_bars(canvas, Bars(bars, kinds=kinds)),
        table,
        "Messages rejected before they reached an inbox (rate limit, access) have no tier.",
    )
    return Section("tiers", title, takeaway, [figure], [table])


def tier_name(tier: int) -> str:
    """Return the name of a tier."""
    return TIERS.get(tier, "no tier")


def senders_section(report: ReportData) -> Section:
    """Describe the most active senders, and those of the busiest inboxes."""
    title = "Senders"
    senders = report.senders
    if not senders.senders:
        return Section("senders", title, "Nothing was published in this period.")
    first = senders.senders[0]
    takeaway = (
        f"The busiest sender was {qualified_name(report, first.relay, first.sender)} with"
        f" {plural(first.publishes, 'publish', 'publishes')},"
        f" {share(first.publishes, report.traffic.total.publishes)} of all."
    )
    count = len(senders.inboxes)
    note = (
        f"Shares of the senders at the {plural(count, 'busiest inbox', 'busiest inboxes')} of"
        f" {number(count + senders.inboxes_more)}; hatched is rejected. Tiers are those of the"
        " last arrival."
    )
    figures = [
        _inbox_figure(report, one, "" if index else note)
        for index, one in enumerate(senders.inboxes)
    ]
    return Section("senders", title, takeaway, figures, [_senders_table(report)])


def _inbox_figure(report: ReportData, inbox: BusyInbox, note: str) -> Figure:
    name = qualified_name(report, inbox.relay, inbox.endpoint)
    rest = inbox.arrivals - sum(one.arrivals for one in inbox.senders)
    bars = [
        Bar(
            one.sender,
            [("stored", one.arrivals - one.rejected), ("rejected", one.rejected)],
            f"{share(one.arrivals, inbox.arrivals)} {tier_name(one.tier)}",
        )
        for one in inbox.senders
    ]
    if inbox.more:
        bars.append(
            Bar(f"{number(inbox.more)} more", [("unclaimed", rest)], share(rest, inbox.arrivals))
        )
    return Figure(
        f"{name}: {plural(inbox.arrivals, 'arrival')}",
        f"A bar for each of the most frequent senders to {name}: its share of all arrivals.",
        lambda canvas: draw_bars(canvas, Bars(bars, whole=inbox.arrivals)),
        ReportTable(
            f"Senders to {name}",
            ["Sender", "Tier", "Arrivals", "Share", "Rejected"],
            [
                [
                    one.sender,
                    tier_name(one.tier),
                    number(one.arrivals),
                    share(one.arrivals, inbox.arrivals),
                    number(one.rejected),
                ]
                for one in inbox.senders
            ],
            frozenset({"Arrivals", "Share", "Rejected"}),
            omitted(inbox.more, "sender"),
        ),
        note,
    )


def _senders_table(report: ReportData) -> ReportTable:
    numbers = ["Publishes", "Stored", "Rejected", "Answers", "Bytes", "Busiest minute"]
    rows = [
        [
            qualified_name(report, one.relay, one.sender),
            *(number(value) for value in (one.publishes, one.stored, one.rejected, one.answers)),
            size(one.bytes),
            number(one.busiest_minute),
        ]
        for one in report.senders.senders
    ]
    after = omitted(report.senders.more, "sender")
    return ReportTable(
        "The most active senders", ["Sender", *numbers], rows, frozenset(numbers), after
    )
