"""Agents of the directory as text. Their cards are text of strangers."""

from rich.text import Text

from waypost.cli.rendering.console import ROWS_MAX, ago, console, plural, styled, table
from waypost.wire.cards import AgentInfo
from waypost.wire.printable import printable


def show_directory(agents: list[AgentInfo], skill: str | None) -> None:
    """Print the agents of the directory, or of those with `skill`, as a table."""
    out = console()
    rows = table("agent", "presence", "skills", "description")
    for one in agents[:ROWS_MAX]:
        rows.add_row(
            styled(one.subject, "bold"),
            _presence(one),
            styled(", ".join(one.skills), "cyan"),
            printable(one.description),
        )
    if agents:
        out.print(rows)
    having = f" with the skill {printable(skill)}" if skill else ""
    out.print(f"{plural(len(agents), 'agent')}{having}.", style="dim" if agents else "")


def show_agent(agent: AgentInfo) -> None:
    """Print one agent: its card, its key and its presence."""
    out = console()
    out.print(Text.assemble(styled(agent.subject, "bold"), f"  {_presence(agent)}"))
    lines = (
        ("description", agent.description),
        ("skills", ", ".join(agent.skills)),
        ("version", agent.version),
        ("requests", "accepted" if agent.accepts_requests else "not accepted"),
        ("public key", agent.public_key),
    )
    for name, text in lines:
        if text:
            out.print(f"  {name:<12} {printable(text)}", soft_wrap=True)


def _presence(agent: AgentInfo) -> str:
    if agent.connected:
        return "connected"
    return "" if agent.last_seen is None else f"seen {ago(agent.last_seen)}"
