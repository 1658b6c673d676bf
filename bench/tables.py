"""Tables for the terminal and for Markdown, and those that compare peers."""

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console
from rich.table import Table as RichTable

from bench import series

WIDTH = 100
"""Of lines in Markdown, except rows of a table."""


@dataclass(frozen=True, slots=True)
class Table:
    """Text in rows; the first column is on the left, the others on the right."""

    title: str
    headings: Sequence[str]
    rows: Sequence[Sequence[str]] = field(default_factory=list)
    caption: str = ""

    def show(self, console: Console) -> None:
        """Print the table on a terminal."""
        shown = RichTable(title=self.title, caption=self.caption or None)
        for index, heading in enumerate(self.headings):
            shown.add_column(heading, justify="right" if index else "left", overflow="fold")
        for row in self.rows:
            shown.add_row(*row)
        console.print(shown, markup=False)

    def markdown(self) -> str:
        """Return title, table and caption as Markdown."""
        rule = ["---", *("--:" for _ in self.headings[1:])]
        lines = ["| " + " | ".join(self.headings) + " |", "|" + "|".join(rule) + "|"]
        lines += ["| " + " | ".join(row) + " |" for row in self.rows]
        parts = [f"{self.title}:", "\n".join(lines)]
        if self.caption:
            parts.append(textwrap.fill(f"({self.caption.removesuffix('.')}.)", WIDTH))
        return "\n\n".join(parts)


def compare(
    title: str, rates: Mapping[str, Any], baseline: str, missing: Mapping[str, str]
) -> Table:
    """Return the rates of all peers by number in flight, and their ratio to the baseline's.

    `rates` has the runs of each peer by number in flight. Peers in `missing` get a row each.
    """
    rows = []
    for peer in dict.fromkeys(peer for by_peer in rates.values() for peer in by_peer):
        cells = [peer]
        for by_peer in rates.values():
            runs, others = by_peer.get(peer), by_peer.get(baseline)
            cells.append(series.rate_text(runs) if runs else "–")
            relative = bool(runs and others)
            cells.append(series.ratio_text(series.ratio(runs, others)) if relative else "–")
        rows.append(cells)
    width = 2 * len(rates)
    rows += [[peer, reason, *[""] * (width - 1)] for peer, reason in missing.items()]
    headings = ["peer"]
    for in_flight in rates:
        headings += [f"{int(in_flight):,} in flight", "ratio"]
    caption = (
        "per second, median ± half the spread;"
        f" ratio to {baseline}, run by run: median (lowest–highest)"
    )
    return Table(title, headings, rows, caption)
