"""What a command needs beyond the installation it finds itself in."""

import importlib.util
from collections.abc import Iterable

import typer


def require(purpose: str, modules: Iterable[str], extra: str) -> None:
    """End with one sentence unless all `modules` are there; `extra` is what brings them."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        typer.echo(
            f"waypost: {purpose} needs {', '.join(missing)}, which this installation leaves out:"
            f' pip install "waypost[{extra}]"',
            err=True,
        )
        raise typer.Exit(1)
