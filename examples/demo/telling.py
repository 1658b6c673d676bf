"""What is printed: scenes as they happen, and in the end what was tried and what came of it."""

import shutil
from typing import NamedTuple

from rich.console import Console
from rich.markup import escape
from rich.table import Table

WIDTH_MAX = 100


def console_for_people() -> Console:
    """As wide as the terminal, up to 100 columns."""
    columns = shutil.get_terminal_size((WIDTH_MAX, 24)).columns
    return Console(highlight=False, width=min(WIDTH_MAX, columns))


console = console_for_people()


class Outcome(NamedTuple):
    """One line of the summary: who tried what, and what the relay did about it."""

    who: str
    tried: str
    came: str


def scene(title: str) -> None:
    """Begin a scene."""
    console.rule(f"[bold]{escape(title)}", align="left")


def say(text: str) -> None:
    """One line of a scene, as it is: a terminal may break it, so that it can be copied whole."""
    console.print(f"  {escape(text)}", soft_wrap=True)


def tell(outcomes: list[Outcome]) -> None:
    """All of it, as a table."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    table.add_column()
    for one in outcomes:
        table.add_row(f"  {one.who}", escape(one.tried), escape(one.came))
    console.print(table)
