"""Output on stdout and stderr, in one style for every command.

Text from messages and from relays is never trusted: control characters and markup are shown, not
interpreted, whatever is printed and by which function.
"""

import sys
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from waypost.wire.printable import printable, printable_json

ROWS_MAX = 50
"""Maximum rows of a table; --json prints all of them."""


class _Terminal(Console):
    """A console that escapes unprintable characters in everything it renders."""

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        """Render, and escape what is left of control characters."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable() or segment.text == "\n":
                yield segment
            else:
                lines = (printable(line) for line in segment.text.split("\n"))
                yield Segment("\n".join(lines), segment.style)


def console(*, stderr: bool = False) -> Console:
    """Return a console for text on stdout or stderr."""
    return _Terminal(highlight=False, markup=False, emoji=False, stderr=stderr)


def print_json(result: Any) -> None:
    """Print `result` as JSON on stdout, whatever the terminal's encoding."""
    content = msgspec.json.encode(result, enc_hook=str)
    typer.echo(printable_json(msgspec.json.format(content, indent=2).decode()).encode())


def print_json_line(result: Any) -> None:
    """Print `result` as one line of JSON on stdout, flushed at once."""
    typer.echo(printable_json(msgspec.json.encode(result, enc_hook=str).decode()).encode())


def note(text: str) -> None:
    """Print a line on stderr that is not part of the result."""
    typer.echo(f"waypost: {printable(text)}", err=True)


def ask(question: str) -> bool:
    """Ask for confirmation on stderr, so that stdout holds only the result; default no."""
    typer.echo(f"{question} [y/N] ", err=True, nl=False)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        typer.echo(err=True)
    return answer.strip().lower() in ("y", "yes")


def table(*columns: str, numbers: tuple[str, ...] = ()) -> Table:
    """Return an empty table; the columns in `numbers` are right-aligned."""
    rows = Table(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold", show_edge=False)
    for name in columns:
        right = name in numbers
        rows.add_column(
            name,
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    return rows


def at(instant: datetime) -> str:
    """Format an instant in UTC, to the second."""
    return f"{instant.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def ago(instant: datetime, now: datetime | None = None) -> str:
    """Format the age of an instant in its largest unit."""
    seconds = int(((now or datetime.now(UTC)) - instant).total_seconds())
    if seconds < 0:
        return at(instant)
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{seconds // size:,} {unit} ago"
    return f"{seconds} s ago"


def duration(length: timedelta) -> str:
    """Format a duration with three significant digits: 350 ms, 1.2 s, 3 min 5 s, 2 h 4 min."""
    ms = length / timedelta(milliseconds=1)
    if ms < 1000:
        return f"{ms:.3g} ms"
    seconds = ms / 1000
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"


_EVENT_LABELS = {"accepted": "stored", "acked": "acknowledged"}


def event_label(kind: str) -> str:
    """Return the word for people of an event or outcome; the journal has its own for two."""
    return _EVENT_LABELS.get(kind, kind)


def plural(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `3 messages`, `1 message`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def styled(text: str, style: str) -> Text:
    """Return printable text in one style."""
    return Text(printable(text), style=style)
