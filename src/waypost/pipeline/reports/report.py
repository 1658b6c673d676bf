"""`report`: what a lake has to say, as one HTML file."""

import os
from pathlib import Path

import msgspec

from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import Facts
from waypost.pipeline.reports.page import render_page
from waypost.pipeline.reports.queries.asking import gather_facts
from waypost.pipeline.reports.sections.headline import findings, headline


class ReportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """Which file was written, how large it is, and what it says in short."""

    path: str
    bytes: int
    headline: str
    findings: list[str]
    days: int
    relays: int
    messages: int


def write_report(lake: Lake, out: str | Path) -> ReportSummary:
    """Ask the lake and write the page to `out`, whole or not at all. Raises `OSError`."""
    return write_page(gather_facts(lake), out)


def write_page(facts: Facts, out: str | Path) -> ReportSummary:
    """Write the page of `facts` to `out`, whole or not at all. Raises `OSError`."""
    path = Path(out)
    page = render_page(facts).encode()
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        unfinished.write_bytes(page)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return ReportSummary(
        path=str(path),
        bytes=len(page),
        headline=headline(facts),
        findings=[one.words for one in findings(facts)],
        days=facts.scope.days,
        relays=len(facts.scope.relays) + facts.scope.relays_more,
        messages=facts.traffic.total.stored,
    )
