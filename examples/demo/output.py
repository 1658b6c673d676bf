"""Output of the demo: scenes while they run, and a table of outcomes at the end."""

import shutil
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDTH_MAX = 100


def create_console() -> Console:
    """Return a console as wide as the terminal, up to 100 columns."""
    columns = shutil.get_terminal_size((WIDTH_MAX, 24)).columns
    return Console(highlight=False, width=min(WIDTH_MAX, columns))


console = create_console()


class Outcome(NamedTuple):
    """One line of the summary: which agent tried what, and what the relay did."""

    agent: str
    tried: str
    result: str


def print_title(title: str) -> None:
    """Print the title of a scene."""
    console.rule(f"[bold]{escape(title)}", align="left")


def print_line(text: str) -> None:
    """Print one line of a scene without wrapping it, so that it can be copied as a whole."""
    console.print(f"  {escape(text)}", soft_wrap=True)


def print_outcomes(outcomes: list[Outcome]) -> None:
    """Print all outcomes as a table."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    table.add_column()
    for one in outcomes:
        table.add_row(f"  {one.agent}", escape(one.tried), escape(one.result))
    console.print(table)
