"""What to look at, as text: each finding with what to do, the command, and the dashboard's view."""

import shlex
from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from waypost.wire.findings import OperatorFinding


def findings_text(
    findings: list[OperatorFinding], url: str, options: Iterable[str]
) -> RenderableType:
    """Return findings as text; `options` choose the relay in each command."""
    if not findings:
        return Text("Nothing needs attention.", style="green")
    lines: list[RenderableType] = [Text("What to look at", style="bold")]
    for number, one in enumerate(findings, start=1):
        lines.append(Padding(Text(f"{number}. {one.text}", style="red"), (0, 0, 0, 2)))
        more = [one.advice, shlex.join(["waypost", *one.command, *options])]
        if url:
            more.append(f"{url}/{one.link}")
        lines += [Padding(Text(text, overflow="fold"), (0, 0, 0, 5)) for text in more]
    return Group(*lines)
