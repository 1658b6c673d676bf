"""`send`, `inbox` and `explain`: messages in, messages out, and what became of one."""

from typing import Annotated

import typer

from waypost.cli.arguments import read_payload
from waypost.cli.options import JsonOption, Where, on_a_relay

REJECTED = 3


To = Annotated[str, typer.Argument(help="Where to: agent.billing, or a pattern.")]
Payload = Annotated[
    str, typer.Argument(help="JSON, any other text, '-' for stdin, or @FILE.", show_default=False)
]
Sender = Annotated[
    str | None,
    typer.Option("--sender", metavar="SUBJECT", help="Who sends it.", show_default=False),
]
ReplyTo = Annotated[
    str | None, typer.Option("--reply-to", metavar="SUBJECT", help="Where answers should go.")
]
MessageId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Your own id: sent twice, it is stored once."),
]
Register = Annotated[
    bool, typer.Option("--register", help="Give SUBJECT a mailbox first, if it has none.")
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0,
        metavar="SECONDS",
        help="Wait so long for the recipient to confirm it.",
        show_default=False,
    ),
]


@on_a_relay
def send(  # noqa: PLR0913 - each is part of one message
    where: Where,
    subject: To,
    payload: Payload,
    *,
    sender: Sender = None,
    reply_to: ReplyTo = None,
    message_id: MessageId = None,
    register: Register = False,
    wait: Wait = None,
    json: JsonOption = False,
) -> None:
    """Send one message.

    The payload is JSON. Text that is not JSON is sent as a JSON string; to send
    text that begins with '@', or just '-', write it as a JSON string yourself.
    Exits with 0 if a mailbox took the message, with 3 if it was refused or
    nobody is there. No relay may be running on the directory.

    A served relay knows senders by their keys: --sender needs the keys that
    'waypost keys new' made, --key names another file. Without either the
    message is anonymous, unless the relay wants to know. With --wait you are
    told who has confirmed it, and whether it had to be stored until then.

    \b
    Examples:
      waypost send agent.billing '{"refund": 12}' --sender agent.web --register
      waypost send agent.billing "call me" --sender agent.web --id call-17
      waypost send 'agent.>' @news.json --sender agent.web
      waypost send agent.billing hello --url http://127.0.0.1:7171
    """
    content = read_payload(payload)
    from waypost.cli.rendering import console, messages
    from waypost.wire.outgoing import OutgoingMessage

    message = OutgoingMessage(subject, content, reply_to=reply_to, message_id=message_id)
    sent = where.target().send(message, sender, register=register, wait_s=wait)
    if json:
        console.print_json(sent)
    else:
        messages.show_sent(sent, wait)
    if not sent.delivered_to:
        raise typer.Exit(REJECTED)


@on_a_relay
def inbox(
    where: Where,
    subject: Annotated[str, typer.Argument(help="The endpoint whose mailbox to look into.")],
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, metavar="N", help="At most this many.")
    ] = 50,
    max_size: Annotated[
        int | None,
        typer.Option("--max-size", min=1, metavar="BYTES", help="Leave larger messages alone."),
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack", help="Take the messages out: print, then acknowledge them.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what waits in a mailbox, oldest first.

    Without --ack this only looks, and works while a relay is running. With
    --ack the messages leave the mailbox once they are printed.

    A served relay shows a mailbox to its agent (--key) and to its operator, and
    not while the agent is connected: then its messages go there. Looking hands
    them out for a moment and gives them back.

    \b
    Examples:
      waypost inbox agent.billing
      waypost inbox agent.billing --ack --limit 10 --json
    """
    from waypost.cli.rendering import console, messages

    show = console.print_json if json else messages.show_inbox
    if ack:
        where.target().consume(subject, limit, max_size, show)
    else:
        show(where.target().inbox(subject, limit, max_size))


@on_a_relay
def explain(
    where: Where,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id that 'send' printed.")],
    json: JsonOption = False,
) -> None:
    """Tell everything that happened to a message.

    Each check with its numbers, each delivery, each outcome, read back from the
    journal. Works while a relay is running. A served relay tells its operator
    everything, and an agent what became of its own messages.

    \b
    Example:
      waypost explain 01JZ8Q7V9S3T5W7X9Z1B3D5F7H
    """
    from waypost.cli.rendering import console, messages

    story = where.target().explain(message_id)
    if json:
        console.print_json(story)
    else:
        messages.show_story(story)
