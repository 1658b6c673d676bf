"""Renders the sections for a terminal: sentences and tables, without the charts.

Text from agents is never trusted: control characters and markup are shown, not interpreted.
"""

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from waypost.pipeline.reports.data import ReportData
from waypost.pipeline.reports.sections import all_sections
from waypost.pipeline.reports.sections.findings import what_to_look_at
from waypost.pipeline.reports.sections.headline import headline
from waypost.pipeline.reports.sections.model import ReportTable
from waypost.wire.printable import printable

ROWS_MAX = 20


def render(report: ReportData) -> list[RenderableType]:
    """Return what to print, in order."""
    output: list[RenderableType] = [Text(printable(headline(report)), style="bold")]
    if report.period is None:
        return output
    output += _findings(report)
    for section in all_sections(report):
        output.append(Text(""))
        output.append(Text(section.title, style="bold cyan"))
        output.append(Text(printable(section.takeaway)))
        for table in section.tables:
            output.append(Padding(_table(table), (1, 0, 0, 2), expand=False))
            if table.after:
                output.append(Padding(Text(printable(table.after), style="dim"), (0, 0, 0, 2)))
    output.append(Text("\nAll times are UTC.", style="dim"))
    return output


def _findings(report: ReportData) -> list[RenderableType]:
    found = what_to_look_at(report)
    if not found:
        return [Text("\nNothing needs attention in this period.", style="green")]
    rows = RichTable.grid(padding=(0, 2, 0, 0))
    rows.add_column(style="bold yellow", no_wrap=True)
    rows.add_column(overflow="fold")
    for one in found:
        rows.add_row(Text(printable(one.kind)), Text(printable(one.text)))
        rows.add_row("", Text(one.advice, style="dim"))
    return [Text("\nWhat to look at", style="bold"), Padding(rows, (0, 0, 0, 2))]


def _table(table: ReportTable) -> RichTable:
    made = RichTable(
        title=Text(table.caption, style="italic"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        pad_edge=False,
        show_edge=False,
        header_style="bold",
    )
    for name in table.columns:
        right = name in table.numbers
        made.add_column(
            Text(printable(name)),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    for row in table.rows[:ROWS_MAX]:
        made.add_row(*(Text(printable(cell)) for cell in row))
    if len(table.rows) > ROWS_MAX:
        made.caption = Text(f"and {len(table.rows) - ROWS_MAX:,} more rows", style="dim")
    return made
