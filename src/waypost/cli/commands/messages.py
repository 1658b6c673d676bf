"""`send`, `inbox`, `explain`, `thread` and `request`: messages, and their history."""

import time
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from waypost.cli.options import (
    JsonOption,
    RelayChoice,
    guard_limits,
    parse_duration,
    parse_instant,
    read_payload,
    with_agent_options,
    with_relay_options,
)
from waypost.policy.bounds import number_max

REJECTED = 3


Recipient = Annotated[
    str, typer.Argument(help="Recipient, for example agent.billing, or a pattern.")
]
Payload = Annotated[
    str, typer.Argument(help="JSON or other text, '-' for stdin, or @FILE.", show_default=False)
]
Payloads = Annotated[
    list[str],
    typer.Argument(
        metavar="PAYLOAD",
        help="JSON or other text, '-' for stdin, or @FILE; each is one request.",
        show_default=False,
    ),
]
AsText = Annotated[
    bool, typer.Option("--text", help="Send the payload as text, even if it looks like JSON.")
]
Sender = Annotated[
    str | None,
    typer.Option("--sender", metavar="SUBJECT", help="Sender of the message.", show_default=False),
]
ReplyTo = Annotated[
    str | None, typer.Option("--reply-to", metavar="SUBJECT", help="Subject for answers.")
]
MessageId = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Your own message id: a repeated id is stored once."),
]
ThreadId = Annotated[
    str | None,
    typer.Option("--thread", metavar="ID", help="Your own id for a conversation that begins here."),
]
Register = Annotated[
    bool, typer.Option("--register", help="Register SUBJECT as an endpoint first, if it is not.")
]
ExpiresIn = Annotated[
    str | None,
    typer.Option(
        "--expires-in",
        metavar="TIME",
        help="Drop it if it is not read within TIME: 45s, 30m, 12h.",
        show_default="the relay's time to live",
    ),
]
DelayOption = Annotated[
    str | None,
    typer.Option(
        "--delay",
        metavar="TIME",
        help="Deliver it after TIME: 45s, 30m, 12h, 7d.",
        show_default=False,
    ),
]
AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="INSTANT",
        help="Deliver it at INSTANT: 2026-05-01T09:00, or with a time zone 2026-05-01T09:00+02:00.",
        show_default=False,
    ),
]
Wait = Annotated[
    float | None,
    typer.Option(
        "--wait",
        min=0,
        metavar="SECONDS",
        help="Wait that long for the recipient to confirm the message.",
        show_default=False,
    ),
]


@with_relay_options
def send(  # noqa: PLR0913 - each is part of one message
    choice: RelayChoice,
    subject: Recipient,
    payload: Payload,
    *,
    text: AsText = False,
    sender: Sender = None,
    reply_to: ReplyTo = None,
    message_id: MessageId = None,
    expires_in: ExpiresIn = None,
    thread: ThreadId = None,
    delay: DelayOption = None,
    at: AtOption = None,
    register: Register = False,
    wait: Wait = None,
    json: JsonOption = False,
) -> None:
    """Send one message.

    The payload is JSON; other text is sent as a JSON string. Text that begins
    with '{', '[' or '"' must be JSON, unless --text is given; so must text that
    begins with '@' or is '-'. Exits with 0 if a mailbox stores it, with 3 if it
    was rejected or no endpoint matched. No relay may run on the data directory.

    With --url, --sender SUBJECT uses the keys that 'waypost keys new' saved,
    --key FILE others; without either it is anonymous, if the relay allows it.
    --wait prints who confirmed it, and if it was stored until then. With --delay
    or --at it is kept until then, when its time to live begins, cut if too long.

    \b
    Examples:
      waypost send agent.billing '{"refund": 12}' --sender agent.web --register
      waypost send agent.billing "call me" --sender agent.web --delay 30m
      waypost send 'agent.>' @news.json --url http://127.0.0.1:7171
    """
    content = read_payload(payload, is_text=text)
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console, messages
    from waypost.wire.outgoing import OutgoingMessage

    when = _schedule(delay, at)
    budget = None if expires_in is None else {"ttl": _expiry_ms(expires_in, **when)}
    message = OutgoingMessage(subject, content, reply_to, budget, None, message_id, thread, **when)
    result = open_backend(choice).send(message, sender, register=register, wait_s=wait)
    if json:
        console.print_json(result)
    else:
        messages.show_send_report(result, wait, later=bool(when))
    if not result.delivered_to:
        raise typer.Exit(REJECTED)


@with_relay_options
def inbox(
    choice: RelayChoice,
    subject: Annotated[str, typer.Argument(help="Endpoint whose mailbox to show.")],
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=1000, metavar="N", help="Show at most N messages.")
    ] = 50,
    max_size: Annotated[
        int | None,
        typer.Option("--max-size", min=1, metavar="BYTES", help="Skip larger messages."),
    ] = None,
    ack: Annotated[
        bool, typer.Option("--ack", help="Acknowledge the messages after printing them.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show the pending messages of a mailbox, oldest first.

    Without --ack nothing is changed, and a relay may be running. With --ack the
    messages leave the mailbox once they are printed.

    A served relay shows a mailbox to its agent (--key) and to its operator. With
    --ack, not while the agent is connected, which gets the messages then.

    \b
    Examples:
      waypost inbox agent.billing
      waypost inbox agent.billing --ack --limit 10 --json
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console, messages

    show = console.print_json if json else messages.show_inbox
    if ack:
        open_backend(choice).consume(subject, limit, max_size, show)
    else:
        show(open_backend(choice).inbox(subject, limit, max_size))


@with_relay_options
def explain(
    choice: RelayChoice,
    message_id: Annotated[str, typer.Argument(metavar="ID", help="Message id printed by 'send'.")],
    json: JsonOption = False,
) -> None:
    """Show the history of a message.

    Each check with its values, each delivery and each outcome, read from the
    journal. A relay may be running. A served relay shows every message to its
    operator, and its own messages to an agent.

    \b
    Example:
      waypost explain 01JZ8Q7V9S3T5W7X9Z1B3D5F7H
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console, messages

    history = open_backend(choice).explain(message_id)
    if json:
        console.print_json(history)
    else:
        messages.show_history(history)


@with_relay_options
def thread(
    choice: RelayChoice,
    thread_id: Annotated[
        str, typer.Argument(metavar="ID", help="Thread id, as 'explain' prints it.")
    ],
    json: JsonOption = False,
) -> None:
    """Show the messages of a conversation, in order.

    Each with its sender, its recipient, the calls left on arrival and its
    outcome, read from the journal. A relay may be running. The id is that of the
    first message, unless its sender chose another. A served relay shows every
    thread to its operator, and to an agent the messages it sent or received.

    \b
    Examples:
      waypost thread 01JZ8Q7V9S3T5W7X9Z1B3D5F7H
      waypost thread release-42 --json
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console, messages

    found = open_backend(choice).thread(thread_id)
    if json:
        console.print_json(found)
    else:
        messages.show_thread(found)


@with_agent_options
def request(  # noqa: PLR0913 - one parameter per option
    choice: RelayChoice,
    subject: Annotated[str, typer.Argument(help="Recipient, for example agent.billing.")],
    payloads: Payloads,
    *,
    text: AsText = False,
    sender: Sender = None,
    timeout: Annotated[
        float,
        typer.Option("--timeout", min=0.001, metavar="SECONDS", help="Time to wait for the reply."),
    ] = 5.0,
    json: JsonOption = False,
) -> None:
    """Send a message and print the reply.

    The reply is the recipient's message whose parent is the request. Prints its
    payload, with --json the whole message. Exits with 1 if no reply arrived in
    time or the recipient failed, with its error, with 3 if it was rejected.
    Needs a served relay and the sender's keys. --text is as in 'send'.

    Several payloads are sent each after the reply to the one before; with --json
    each reply is one line. A guard limits them: exits with 1 if it blocks one.
    Its limits are AGENT_RATE_LIMIT_PER_MIN (10), AGENT_CB_FAILURE_THRESHOLD (5),
    AGENT_CB_RESET_TIMEOUT_MS (30000) and AGENT_CB_SUCCESS_THRESHOLD (2).

    \b
    Examples:
      waypost request agent.sum '{"numbers": [1, 2]}' --sender agent.web
      waypost request agent.sum @question.json --key web.key --timeout 30
      waypost request agent.echo one two three --sender agent.web
    """
    contents = [read_payload(payload, is_text=text) for payload in payloads]
    from waypost.cli.backend import open_remote
    from waypost.cli.remote.agent import RequestOptions
    from waypost.cli.remote.agent import request as run
    from waypost.cli.rendering.messages import RequestOutcomes, note_confirmation
    from waypost.wire.outgoing import OutgoingMessage

    relay = open_remote(choice)
    identity = relay.credentials.require_identity(sender)
    options = RequestOptions(timeout_s=timeout, limits=guard_limits())
    outcomes = RequestOutcomes(len(contents), json=json)
    asked = [OutgoingMessage(subject, content) for content in contents]
    run(relay.url, identity, asked, options, outcomes.add, note_confirmation)
    outcomes.show_summary()
    if outcomes.failed:
        raise typer.Exit(1)
    if outcomes.rejected:
        raise typer.Exit(REJECTED)


def _schedule(delay: str | None, at: str | None) -> dict[str, Any]:
    """Return when to deliver, as fields of a message; none if that is now."""
    when: dict[str, Any] = {}
    if delay is not None:
        when["delay"] = parse_duration(delay)
    if at is not None:
        when["deliver_at"] = parse_instant(at)
    return when


def _expiry_ms(
    expires_in: str, delay: timedelta | None = None, deliver_at: datetime | None = None
) -> int:
    """Return the instant (ms) that is a duration, such as `12h`, from the delivery."""
    millisecond = timedelta(milliseconds=1)
    begin_ms = time.time_ns() // 1_000_000
    if delay is not None:
        begin_ms += delay // millisecond
    if deliver_at is not None:
        begin_ms = max(begin_ms, int(deliver_at.timestamp() * 1000))
    return min(begin_ms + parse_duration(expires_in) // millisecond, number_max)
