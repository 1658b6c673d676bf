"""`names`: list the names of agents, bind them to keys and free them."""

from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, RelayChoice, with_relay_options

if TYPE_CHECKING:
    from waypost.wire.name_bodies import NameInfo

commands = CommandGroup(help="List the names of agents, bind them to keys and free them.")

Subject = Annotated[str, typer.Argument(metavar="SUBJECT", help="The name, for example agent.web.")]


@commands.command("list")
@with_relay_options
def list_(choice: RelayChoice, json: JsonOption = False) -> None:
    """List the names that belong to a key, with their public keys.

    A relay may be running. On a served relay this needs the operator's token.

    \b
    Example:
      waypost names list
    """
    from waypost.cli.backend import open_names
    from waypost.cli.rendering import config, console

    found = open_names(choice).names()
    if json:
        console.print_json({"names": found})
    else:
        config.show_names(found)


@commands.command()
@with_relay_options
def bind(
    choice: RelayChoice,
    subject: Subject,
    public_key: Annotated[
        str,
        typer.Argument(metavar="PUBLIC_KEY", help="The public key, as shown by 'keys show'."),
    ],
    replace: Annotated[
        bool, typer.Option("--replace", help="Take the name from the key it belongs to.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Bind a name to a key, before its agent connects or afterwards.

    Names that config.json reserves can be used with such a key only. A name that
    belongs to the same key already is confirmed. With --replace a name goes to
    another key in one step: its connection ends, and its tokens are invalid. On
    a data directory this fails while a relay runs there: use --url then.

    \b
    Examples:
      waypost names bind agent.ops.deploy 8vx...E3o
      waypost names bind agent.web 8vx...E3o --replace
    """
    from waypost.cli.backend import open_names

    _print_name(open_names(choice).bind_name(subject, public_key, replace=replace), json, "bound")


@commands.command()
@with_relay_options
def unbind(choice: RelayChoice, subject: Subject, json: JsonOption = False) -> None:
    """Free a name, so that another key can bind it.

    Use it for keys that are lost or stolen. The key cannot bind the name again,
    unless you bind it; its connection ends, and its tokens are invalid. Messages
    in the mailbox stay for the next owner, the first other key that connects: to
    choose it, use 'names bind --replace'. On a data directory this fails while a
    relay runs there: use --url then.

    \b
    Example:
      waypost names unbind agent.web --url http://127.0.0.1:7171
    """
    from waypost.cli.backend import open_names

    _print_name(open_names(choice).unbind_name(subject), json, "freed")


def _print_name(name: "NameInfo", json: bool, done: str) -> None:
    from waypost.cli.rendering import console
    from waypost.wire.printable import printable

    if json:
        console.print_json(name)
    else:
        text = printable(f"{name.subject}: {done}, key {name.public_key}")
        console.console().print(text, soft_wrap=True)
