"""`breakers`: list circuit breakers, and reset one."""

from typing import Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, RelayChoice, with_relay_options

commands = CommandGroup(help="List circuit breakers, and reset one.")


@commands.command("list")
@with_relay_options
def list_(choice: RelayChoice, json: JsonOption = False) -> None:
    """List the circuit breakers that are not at rest.

    On a served relay this needs the operator's token. On a data directory it
    shows the breakers that the journal of a running relay says are open or
    half-open; without a running relay, all breakers are closed.

    \b
    Example:
      waypost breakers list --url http://127.0.0.1:7171
    """
    from waypost.cli.backend import open_breakers
    from waypost.cli.rendering import console, maintenance

    found = open_breakers(choice).breakers()
    if json:
        console.print_json({"breakers": found})
    else:
        maintenance.show_breakers(found)


@commands.command()
@with_relay_options
def reset(
    choice: RelayChoice,
    subject: Annotated[
        str, typer.Argument(metavar="SUBJECT", help="The endpoint, for example agent.billing.")
    ],
    json: JsonOption = False,
) -> None:
    """Close a circuit breaker, and forget its failures.

    The next message is admitted at once, without a probe. Breakers are kept in
    the memory of a relay, so this needs a served relay and its operator's token.

    \b
    Example:
      waypost breakers reset agent.billing --url http://127.0.0.1:7171
    """
    from waypost.cli.backend import open_breakers
    from waypost.cli.rendering import console
    from waypost.wire.printable import printable

    done = open_breakers(choice).reset_breaker(subject)
    if json:
        console.print_json(done)
    else:
        text = f"{done.endpoint}: the breaker is closed; it was {done.before}."
        console.console().print(printable(text), soft_wrap=True)
