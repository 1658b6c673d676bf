"""`report`: queries a lake and writes the report as one HTML file."""

from pathlib import Path

import msgspec

from waypost.pipeline.errors import PipelineError
from waypost.pipeline.files import make_directory, replace_file
from waypost.pipeline.lake.lake import Lake
from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.page import render_page
from waypost.pipeline.reports.queries import query_report_data
from waypost.pipeline.reports.sections.findings import what_to_look_at
from waypost.pipeline.reports.sections.headline import headline


class ReportSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The file that was written, its size, and its main statements."""

    path: str
    bytes: int
    headline: str
    findings: list[str]
    days: int
    relays: int
    messages: int


def write_report(lake: Lake, out: str | Path) -> ReportSummary:
    """Query the lake and write the page to `out`, whole or not at all. Raises `PipelineError`."""
    return write_page(query_report_data(lake), out)


def write_page(report: ReportData, out: str | Path) -> ReportSummary:
    """Write the page for `report` to `out`, whole or not at all. Raises `PipelineError`."""
    path = Path(out)
    page = render_page(report).encode()
    try:
        make_directory(path.parent)
        replace_file(path, page)
    except OSError as problem:
        raise PipelineError(
            f"cannot write the report to {path}: {problem.strerror}: name another file, with --out"
            " of `waypost pipeline report` or --report of `waypost pipeline run`"
        ) from None
    return ReportSummary(
        path=str(path),
        bytes=len(page),
        headline=headline(report),
        findings=[one.text for one in what_to_look_at(report)],
        days=report.scope.days,
        relays=len(report.scope.relays) + report.scope.relays_more,
        messages=report.traffic.total.stored,
    )
