"""`listen`: the messages of an agent as they arrive, printed or passed to a command."""

import shlex
import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import JsonOption, RelayChoice, with_agent_options
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.cli.remote.agent import ListenCallbacks
    from waypost.cli.remote.runs import RunCallbacks
    from waypost.client.message import Message

HELP = """\
Print the messages of an agent as they arrive, one per line.

Stored messages come first, then new ones, until Ctrl-C. Confirmations of
messages that this agent sent are printed, too. With --json each line is a
JSON object. With --no-ack the messages are pending again afterwards. With
--shared, other programs that share it may use the same keys. Needs a served
relay and the agent's keys. Exits with 1 if --seconds passed before --count
messages arrived.

With --exec a command runs for each message instead, one at a time. Nothing of
a message is part of the command line, and no shell reads it, unless CMD is
one. The payload is on stdin as JSON; WAYPOST_ID, WAYPOST_SENDER,
WAYPOST_THREAD, WAYPOST_ATTEMPT, WAYPOST_CALLS_LEFT and more are in the
environment. Exit code 0 acknowledges the message; any other returns it to be
delivered again, with the last line of stderr as its error. Ctrl-C ends the
command, and its message is pending again.

\b
Examples:
  waypost keys new agent.billing
  waypost listen agent.billing
  waypost listen agent.billing --count 1 --seconds 30 --json
  waypost listen agent.billing --shared
  waypost listen agent.billing --exec './refund.py --live' --timeout 60
  waypost listen agent.sum --exec "jq add" --reply --parallel 4
"""

PARALLEL_MAX = 64
TIMEOUT_S = 3600.0
TIMEOUT_MAX_S = 24 * 3600
_PANEL = "A command for each message"

Subject = Annotated[str, typer.Argument(help="Agent to listen as.", show_default=False)]
Count = Annotated[
    int | None, typer.Option("--count", min=1, metavar="N", help="Stop after N messages.")
]
Seconds = Annotated[
    float | None, typer.Option("--seconds", min=0, metavar="S", help="Stop after S seconds.")
]
Ack = Annotated[
    bool, typer.Option("--ack/--no-ack", help="Acknowledge each message after printing it.")
]
Shared = Annotated[
    bool, typer.Option("--shared", help="Share the mailbox: each message goes to one listener.")
]
Exec = Annotated[
    str | None,
    typer.Option(
        "--exec",
        metavar="CMD",
        help="Run CMD for each message: payload on stdin, exit code 0 acknowledges.",
        rich_help_panel=_PANEL,
    ),
]
Parallel = Annotated[
    int | None,
    typer.Option(
        "--parallel",
        min=1,
        max=PARALLEL_MAX,
        metavar="N",
        help="Run up to N commands at once.",
        show_default="1",
        rich_help_panel=_PANEL,
    ),
]
Timeout = Annotated[
    float | None,
    typer.Option(
        "--timeout",
        min=0.001,
        max=TIMEOUT_MAX_S,
        metavar="SECONDS",
        help="End a command after that time; the message is returned.",
        show_default=f"{TIMEOUT_S:g}",
        rich_help_panel=_PANEL,
    ),
]
Reply = Annotated[
    bool,
    typer.Option(
        "--reply",
        help="Send what the command prints as the answer.",
        rich_help_panel=_PANEL,
    ),
]
Fenced = Annotated[
    bool,
    typer.Option(
        "--fenced",
        help="Pass the message as text for a model, fenced as foreign, not as JSON.",
        rich_help_panel=_PANEL,
    ),
]


@with_agent_options
def listen(  # noqa: PLR0913, PLR0917 - one parameter per option
    choice: RelayChoice,
    subject: Subject,
    count: Count = None,
    seconds: Seconds = None,
    ack: Ack = True,
    shared: Shared = False,
    command: Exec = None,
    parallel: Parallel = None,
    timeout: Timeout = None,
    reply: Reply = False,
    fenced: Fenced = False,
    json: JsonOption = False,
) -> None:
    """Listen as an agent: print each message, or run a command for it."""
    if command is None:
        _require_command(parallel=parallel, timeout=timeout, reply=reply, fenced=fenced)
    elif not ack:
        raise InvalidInput("--no-ack prints messages only: with --exec the exit code decides")
    arguments = None if command is None else _arguments(command)
    from waypost.cli.backend import open_remote
    from waypost.cli.remote.agent import ListenOptions
    from waypost.cli.remote.agent import listen as run
    from waypost.cli.remote.runs import RunOptions, listen_and_run

    relay = open_remote(choice)
    identity = relay.credentials.require_identity(subject)
    options = ListenOptions(count=count, seconds=seconds, ack=ack, shared=shared)
    if arguments is None:
        received = run(relay.url, identity, options, _callbacks(subject, relay.url, json))
    else:
        runs = RunOptions(
            command=arguments,
            render=_fenced if fenced else _payload,
            parallel=parallel or 1,
            timeout_s=timeout or TIMEOUT_S,
            reply=reply,
            output="stderr" if json else "inherited",
        )
        callbacks = _run_callbacks(subject, relay.url, json)
        received = listen_and_run(relay.url, identity, options, runs, callbacks)
    _require_all(received, count, seconds)


def _require_all(received: int, count: int | None, seconds: float | None) -> None:
    """Exit with 1 if the time passed before `count` messages arrived."""
    from waypost.cli.rendering import console

    if count is not None and received < count and seconds is not None:
        expected = console.plural(count, "message")
        console.note(f"received {received} of {expected} within {seconds:g} s")
        raise typer.Exit(1)


def _require_command(**given: object) -> None:
    for name, value in given.items():
        if value:
            raise InvalidInput(f"--{name} needs --exec CMD, the command to run for each message")


def _arguments(command: str) -> list[str]:
    """Return the arguments of a command. Raises `InvalidInput` if it cannot run."""
    try:
        arguments = shlex.split(command)
    except ValueError as problem:
        raise InvalidInput(
            f"--exec {command!r:.200}: {problem}; quote its arguments as for a shell"
        ) from None
    if not arguments:
        raise InvalidInput("--exec needs a command, for example --exec './handle.py --fast'")
    if shutil.which(arguments[0]) is None:
        raise InvalidInput(
            f"--exec {arguments[0]}: no such command, or it is not executable; give its path, or"
            " sh -c '...' for a shell"
        )
    return arguments


def _payload(message: "Message") -> str:
    import msgspec

    return msgspec.json.encode(message.payload).decode() + "\n"


def _fenced(message: "Message") -> str:
    from waypost.mcp.fencing import HOW_TO_READ, Labels, message_block, readable
    from waypost.mcp.quoting import is_plain_id

    text = readable(message.payload)
    ref = message.id if is_plain_id(message.id) else "received-1"
    return f"{HOW_TO_READ}\n\n{message_block(message, text, Labels(ref))}\n"


def _run_callbacks(subject: str, url: str, json: bool) -> "RunCallbacks":
    from waypost.cli.remote.runs import RunCallbacks
    from waypost.cli.rendering import console, messages

    on_ready = _callbacks(subject, url, json).on_ready
    return RunCallbacks(on_ready, console.print_json_line if json else messages.note_run)


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
