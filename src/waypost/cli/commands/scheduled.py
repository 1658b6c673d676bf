"""`scheduled`: list and cancel messages that are delivered later."""

from typing import Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, RelayChoice, with_relay_options

commands = CommandGroup(help="List and cancel messages that are delivered later.")

Sender = Annotated[
    str | None,
    typer.Option(
        "--sender", metavar="SUBJECT", help="Only messages of this sender.", show_default=False
    ),
]


@commands.command("list")
@with_relay_options
def list_(choice: RelayChoice, sender: Sender = None, json: JsonOption = False) -> None:
    """List the messages that are not due yet, those due first at the top.

    A relay may be running. A served relay shows an agent its own messages
    (--sender, or --key), and its operator all of them.

    \b
    Examples:
      waypost scheduled list
      waypost scheduled list --sender agent.web --url http://127.0.0.1:7171
    """
    from waypost.cli.backend import open_scheduled
    from waypost.cli.rendering import console, messages

    found, more = open_scheduled(choice).scheduled(sender)
    if json:
        console.print_json({"messages": found, "more": more})
    else:
        messages.show_scheduled(found)
    if more:
        console.note(f"these are the first {len(found):,}; there are more")


@commands.command()
@with_relay_options
def cancel(
    choice: RelayChoice,
    ids: Annotated[
        list[str],
        typer.Argument(metavar="ID", help="Ids of scheduled messages.", show_default=False),
    ],
    sender: Sender = None,
    json: JsonOption = False,
) -> None:
    """Cancel messages that are not due yet; they are not delivered.

    No relay may be running on the data directory. On a served relay, an agent
    (--sender, or --key) cancels its own messages, and the operator any. Exits
    with 1 if a message was not found, or is due already.

    \b
    Examples:
      waypost scheduled cancel 01JZ8Q7V9S3T5W7X9Z1B3D5F7H
      waypost scheduled cancel call-17 --sender agent.web
    """
    from waypost.cli.backend import open_scheduled
    from waypost.cli.rendering import console

    done = open_scheduled(choice).cancel(ids, sender)
    if json:
        console.print_json(done)
    else:
        console.console().print(f"{console.plural(len(done.cancelled), 'message')} cancelled.")
    if done.not_cancelled:
        ids_left = ", ".join(done.not_cancelled)
        console.note(f"not found, or due already: {ids_left}; 'waypost scheduled list' shows all")
        raise typer.Exit(1)
