"""`context`: name relays and their credentials, and choose one for the other commands."""

from pathlib import Path
from typing import Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption

commands = CommandGroup(help="Name relays and their credentials, and choose one.")

Name = Annotated[str, typer.Argument(metavar="NAME", help="Your name for the relay.")]


@commands.command()
def add(
    name: Name,
    url: Annotated[str, typer.Argument(metavar="URL", help="URL of the served relay.")],
    key: Annotated[
        Path | None, typer.Option("--key", metavar="FILE", help="Key file of the agent to act as.")
    ] = None,
    operator_token_file: Annotated[
        Path | None,
        typer.Option("--operator-token-file", metavar="FILE", help="The operator's token."),
    ] = None,
) -> None:
    """Add a relay, or change it; the first one is used at once.

    Other commands then need no --url, --key and --operator-token-file: options
    and environment still take precedence. Only names of files are kept, no
    secrets, in ~/.config/waypost/contexts.json.

    \b
    Example:
      waypost context add home http://127.0.0.1:7171 --key ~/.config/waypost/agent.web.key
    """
    from waypost.cli.contexts import RelayContext, check_name, read_contexts, write_contexts
    from waypost.client.address import parse_addresses

    check_name(name)
    parse_addresses(url)
    known = read_contexts()
    known.contexts[name] = RelayContext(
        url=url,
        key=None if key is None else str(key.absolute()),
        operator_token_file=(
            None if operator_token_file is None else str(operator_token_file.absolute())
        ),
    )
    known.current = known.current or name
    write_contexts(known)
    used = "in use" if known.current == name else f"choose it with 'waypost context use {name}'"
    _say(f"{name}: {url}; {used}.")
    for file in (key, operator_token_file):
        if file is not None and not file.is_file():
            _say(f"note: there is no file {file} yet.")


@commands.command()
def use(name: Name) -> None:
    """Choose the relay that other commands use when no relay is given.

    \b
    Example:
      waypost context use home
    """
    from waypost.cli.contexts import read_contexts, write_contexts

    known = read_contexts()
    chosen = known.get(name)
    known.current = name
    write_contexts(known)
    _say(f"{name}: {chosen.url}; in use.")


@commands.command("list")
def list_(json: JsonOption = False) -> None:
    """List the relays, and mark the one in use.

    \b
    Example:
      waypost context list
    """
    from waypost.cli.contexts import read_contexts
    from waypost.cli.rendering import console

    known = read_contexts()
    if json:
        console.print_json(known)
        return
    if not known.contexts:
        _say("No contexts. Add one with: waypost context add NAME URL")
        return
    rows = console.table("", "Name", "URL", "Key", "Operator token")
    for name, one in sorted(known.contexts.items()):
        mark = "*" if name == known.current else ""
        rows.add_row(mark, name, one.url, one.key or "-", one.operator_token_file or "-")
    console.console().print(rows)


@commands.command()
def remove(name: Name) -> None:
    """Remove a relay from the list; nothing else changes.

    \b
    Example:
      waypost context remove home
    """
    from waypost.cli.contexts import read_contexts, write_contexts

    known = read_contexts()
    known.get(name)
    del known.contexts[name]
    if known.current == name:
        known.current = ""
    write_contexts(known)
    _say(f"{name}: removed.")


def _say(text: str) -> None:
    from waypost.cli.rendering.console import console
    from waypost.wire.printable import printable

    console().print(printable(text), soft_wrap=True)
