"""`listen` and `request`: being an agent at a served relay for a while."""

from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.arguments import read_payload
from waypost.cli.commands.messages import REJECTED, Payload, Sender
from waypost.cli.options import JsonOption, Where, as_an_agent

if TYPE_CHECKING:
    from waypost.cli.remote.agents import Listener


@as_an_agent
def listen(
    where: Where,
    subject: Annotated[str, typer.Argument(help="The agent you are.", show_default=False)],
    count: Annotated[
        int | None, typer.Option("--count", min=1, metavar="N", help="End after so many messages.")
    ] = None,
    seconds: Annotated[
        float | None,
        typer.Option("--seconds", min=0, metavar="S", help="End after so many seconds."),
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack/--no-ack", help="Take each message out once it is printed.")
    ] = True,
    json: JsonOption = False,
) -> None:
    """Print the messages of an agent as they come, one a line.

    First what was stored while it was away, then what arrives, until Ctrl-C.
    Also told is who has confirmed messages that this agent sent. With --json
    each line is a JSON object. With --no-ack the messages wait again
    afterwards. Needs a relay that is served, and the agent's keys. Exits with 1
    if --seconds were over before --count messages came.

    \b
    Examples:
      waypost keys new agent.billing
      waypost listen agent.billing
      waypost listen agent.billing --count 1 --seconds 30 --json
    """
    from waypost.cli.remote.agents import Listening
    from waypost.cli.remote.agents import listen as hear
    from waypost.cli.rendering import console

    relay = where.served()
    identity = relay.credentials.require_identity(subject)
    wanted = Listening(count=count, seconds=seconds, ack=ack)
    heard = hear(relay.url, identity, wanted, _listener(subject, relay.url, json))
    if count is not None and heard < count and seconds is not None:
        console.note(f"{heard} of {console.plural(count, 'message')} came within {seconds:g} s")
        raise typer.Exit(1)


@as_an_agent
def request(
    where: Where,
    subject: Annotated[str, typer.Argument(help="Who is asked: agent.billing.")],
    payload: Payload,
    sender: Sender = None,
    timeout: Annotated[
        float, typer.Option("--timeout", min=0.001, metavar="SECONDS", help="How long to wait.")
    ] = 5.0,
    json: JsonOption = False,
) -> None:
    """Send a message and print the reply to it.

    The reply is a message that follows from the request, sent by whoever was
    asked. Prints its payload, with --json the whole message. Exits with 1 if
    none came in time, with 3 if the request was refused. Needs a relay that is
    served, and the keys of the sender.

    \b
    Examples:
      waypost request agent.sum '{"numbers": [1, 2]}' --sender agent.web
      waypost request agent.sum @question.json --key web.key --timeout 30
    """
    content = read_payload(payload)
    from waypost.cli.facts import Sent
    from waypost.cli.remote.agents import ask
    from waypost.cli.rendering import console, messages
    from waypost.wire.outgoing import OutgoingMessage

    relay = where.served()
    identity = relay.credentials.require_identity(sender)
    request = OutgoingMessage(subject, content)
    answer = ask(relay.url, identity, request, timeout, messages.note_confirmation)
    if isinstance(answer, Sent):
        if json:
            console.print_json(answer)
        else:
            messages.show_sent(answer)
        raise typer.Exit(REJECTED)
    if json:
        console.print_json(answer)
    else:
        messages.show_reply(answer)


def _listener(subject: str, url: str, json: bool) -> "Listener":
    from waypost.cli.remote.agents import Listener
    from waypost.cli.rendering import console, messages

    def ready(stored: int) -> None:
        waiting = console.plural(stored, "stored message")
        console.note(f"listening as {subject} at {url}, {waiting}; Ctrl-C ends it")

    return Listener(
        ready=ready,
        heard=console.print_json_line if json else messages.show_heard,
        confirmed=console.print_json_line if json else messages.show_confirmation,
    )
