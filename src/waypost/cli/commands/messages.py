"""`send`, `inbox` and `explain`: messages in, messages out, and what became of one."""

from typing import Annotated

import typer

from waypost.cli.arguments import read_payload
from waypost.cli.options import DEFAULT_DATA_DIR, DataDirOption, JsonOption, directory

REFUSED = 3


def send(  # noqa: PLR0913 - each is part of one message
    subject: Annotated[str, typer.Argument(help="Where to: agent.billing, or a pattern.")],
    payload: Annotated[str, typer.Argument(help="JSON, any other text, '-' for stdin, or @FILE.")],
    *,
    sender: Annotated[str, typer.Option("--sender", metavar="SUBJECT", help="Who sends it.")],
    reply_to: Annotated[
        str | None, typer.Option("--reply-to", metavar="SUBJECT", help="Where answers should go.")
    ] = None,
    message_id: Annotated[
        str | None,
        typer.Option("--id", metavar="ID", help="Your own id: sent twice, it is stored once."),
    ] = None,
    register: Annotated[
        bool, typer.Option("--register", help="Give SUBJECT a mailbox first, if it has none.")
    ] = False,
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    json: JsonOption = False,
) -> None:
    """Send one message.

    The payload is JSON. Text that is not JSON is sent as a JSON string; to send
    text that begins with '@', or just '-', write it as a JSON string yourself.
    Exits with 0 if a mailbox took the message, with 3 if it was refused or
    nobody is there. No relay may be running on the directory.

    \b
    Examples:
      waypost send agent.billing '{"refund": 12}' --sender agent.web --register
      waypost send agent.billing "call me" --sender agent.web --id call-17
      waypost send 'agent.>' @news.json --sender agent.web
    """
    content = read_payload(payload)
    from waypost.cli.rendering import console, messages
    from waypost.relay.traffic.drafts import Draft

    draft = Draft(subject, content, sender, reply_to, message_id=message_id)
    sent = directory(data_dir).send(draft, register=register)
    if json:
        console.print_json(sent)
    else:
        messages.show_sent(sent)
    if not sent.delivered_to:
        raise typer.Exit(REFUSED)


def inbox(
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
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    json: JsonOption = False,
) -> None:
    """Show what waits in a mailbox, oldest first.

    Without --ack this only looks, and works while a relay is running. With
    --ack the messages leave the mailbox once they are printed.

    \b
    Examples:
      waypost inbox agent.billing
      waypost inbox agent.billing --ack --limit 10 --json
    """
    from waypost.cli.rendering import console, messages

    show = console.print_json if json else messages.show_inbox
    if ack:
        directory(data_dir).consume(subject, limit, max_size, show)
    else:
        show(directory(data_dir).inbox(subject, limit, max_size))


def explain(
    message_id: Annotated[str, typer.Argument(metavar="ID", help="The id that 'send' printed.")],
    data_dir: DataDirOption = DEFAULT_DATA_DIR,
    json: JsonOption = False,
) -> None:
    """Tell everything that happened to a message.

    Each check with its numbers, each delivery, each outcome, read back from the
    journal. Works while a relay is running.

    \b
    Example:
      waypost explain 01JZ8Q7V9S3T5W7X9Z1B3D5F7H
    """
    from waypost.cli.rendering import console, messages

    story = directory(data_dir).explain(message_id)
    if json:
        console.print_json(story)
    else:
        messages.show_story(story)
