"""`listen`: the messages of an agent as they arrive."""

from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import JsonOption, RelayChoice, with_agent_options

if TYPE_CHECKING:
    from waypost.cli.remote.agent import ListenCallbacks


@with_agent_options
def listen(  # noqa: PLR0913, PLR0917 - one parameter per option
    choice: RelayChoice,
    subject: Annotated[str, typer.Argument(help="Agent to listen as.", show_default=False)],
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="Stop after N messages.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0, metavar="S", help="Stop after S seconds."),
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Acknowledge each message after printing it.")
    ] = True,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Share the mailbox: each message goes to one listener."),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Print the messages of an agent as they arrive, one per line.

    Stored messages come first, then new ones, until Ctrl-C. Confirmations of
    messages that this agent sent are printed, too. With --json each line is a
    JSON object. With --no-ack the messages are pending again afterwards. With
    --shared, other programs that share it may use the same keys. Needs a served
    relay and the agent's keys. Exits with 1 if --seconds passed before --count
    messages arrived.

    \b
    Examples:
      waypost keys new agent.billing
      waypost listen agent.billing
      waypost listen agent.billing --count 1 --seconds 30 --json
      waypost listen agent.billing --shared
    """
    from waypost.cli.backend import open_remote
    from waypost.cli.remote.agent import ListenOptions
    from waypost.cli.remote.agent import listen as run
    from waypost.cli.rendering import console

    relay = open_remote(choice)
    identity = relay.credentials.require_identity(subject)
    options = ListenOptions(count=count, seconds=seconds, ack=ack, shared=shared)
    received = run(relay.url, identity, options, _callbacks(subject, relay.url, json))
    if count is not None and received < count and seconds is not None:
        expected = console.plural(count, "message")
        console.note(f"received {received} of {expected} within {seconds:g} s")
        raise typer.Exit(1)


def _callbacks(subject: str, url: str, json: bool) -> "ListenCallbacks":
    from waypost.cli.remote.agent import ListenCallbacks
    from waypost.cli.rendering import console, messages

    def on_ready(stored: int) -> None:
        pending = console.plural(stored, "stored message")
        console.note(f"listening as {subject} at {url}, {pending}; stop with Ctrl-C")

    return ListenCallbacks(
        on_ready=on_ready,
        on_message=console.print_json_line if json else messages.show_received,
        on_confirmation=console.print_json_line if json else messages.show_confirmation,
    )
