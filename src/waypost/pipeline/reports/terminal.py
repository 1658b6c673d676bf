"""Sections for a terminal: the sentences and the tables, without the drawings.

Text from agents is never trusted: control characters and markup in it are shown, not obeyed.
"""

from rich import box
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from waypost.pipeline.reports.data import Facts
from waypost.pipeline.reports.formatting import printable
from waypost.pipeline.reports.sections.every import every_section
from waypost.pipeline.reports.sections.headline import findings, headline
from waypost.pipeline.reports.sections.model import Table

ROWS_MAX = 20


def render(facts: Facts) -> list[RenderableType]:
    """What to print, one below the other."""
    shown: list[RenderableType] = [Text(printable(headline(facts)), style="bold")]
    if facts.period is None:
        return shown
    shown += _findings(facts)
    for section in every_section(facts):
        shown.append(Text(""))
        shown.append(Text(section.title, style="bold cyan"))
        shown.append(Text(printable(section.takeaway)))
        for table in section.tables:
            shown.append(Padding(_table(table), (1, 0, 0, 2), expand=False))
            if table.after:
                shown.append(Padding(Text(printable(table.after), style="dim"), (0, 0, 0, 2)))
    shown.append(Text("\nAll times are UTC.", style="dim"))
    return shown


def _findings(facts: Facts) -> list[RenderableType]:
    found = findings(facts)
    if not found:
        return [Text("\nNothing stands out in this period.", style="green")]
    rows = RichTable.grid(padding=(0, 2, 0, 0))
    rows.add_column(style="bold yellow", no_wrap=True)
    rows.add_column(overflow="fold")
    for one in found:
        rows.add_row(Text(printable(one.kind)), Text(printable(one.words)))
    return [Text("\nWhat to look at", style="bold"), Padding(rows, (0, 0, 0, 2))]


def _table(table: Table) -> RichTable:
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
