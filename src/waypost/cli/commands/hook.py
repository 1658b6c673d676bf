"""`hook`: waiting messages for the hooks of a terminal agent.

Rule 1  The turn of the host comes first: an answer within a short time or none, and an exit code
        that blocks nothing. Exit code 2 would discard the prompt, or keep a turn from ending.
Rule 2  Messages are peeked at: neither leased nor acknowledged, and shown once in a session.
"""

import os
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from waypost.cli.help import Command
from waypost.cli.options import DEFAULT_URL, RelayChoice, with_agent_options
from waypost.policy.errors import WaypostError

if TYPE_CHECKING:
    from waypost.cli.remote.hook import HookMemory, Session
    from waypost.cli.remote.responses import PeekResponse
    from waypost.cli.rendering.hooks import HookEvent

PEEK_LIMIT = 50
EVENT_MAX_BYTES = 16 * 1024 * 1024
TIMEOUT_S = 3.0


class HookCommand(Command):
    """A command whose usage errors exit with 1."""

    def make_context(self, *given: Any, **named: Any) -> Any:
        """Parse the arguments."""
        try:
            return super().make_context(*given, **named)
        except Exception as problem:
            if getattr(problem, "exit_code", 0) == 2:
                setattr(problem, "exit_code", 1)  # noqa: B010 - unknown to mypy
            raise


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", min=0.001, max=60, metavar="SECONDS", help="Give up after that time."
    ),
]
Settings = Annotated[
    str | None,
    typer.Option(
        "--settings",
        metavar="HOST",
        help="Print ready-made settings instead, for claude, codex or gemini.",
    ),
]


@with_agent_options
def hook(
    choice: RelayChoice,
    subject: Annotated[str, typer.Argument(help="Agent whose messages to show.")],
    timeout: Timeout = TIMEOUT_S,
    settings: Settings = None,
) -> None:
    """Print waiting messages, for the hooks of a terminal agent.

    Claude Code, Codex and Gemini CLI run it when a session starts, at each prompt
    and when a turn ends; the event is on stdin. Each message is shown once in a
    session, fenced as foreign text, and stays in the mailbox until it is
    acknowledged. Prints nothing if there is nothing new. Exits with 0 if the relay
    does not answer, with 1 for a mistake: neither disturbs a turn.

    \b
    Examples:
      waypost hook agent.me
      waypost hook agent.me --settings claude
    """
    # All of it before the time is measured: it is slow to load on a busy machine.
    from waypost.cli.remote.credentials import Credentials
    from waypost.cli.remote.hook import HookMemory, peek
    from waypost.cli.rendering import console, hooks
    from waypost.client.address import parse_address

    try:
        host = None if settings is None else hooks.host_named(settings)
        identity = Credentials(choice).require_identity(subject)
        url = choice.url or DEFAULT_URL
        parse_address(url)
        if host is not None:
            console.print_json(hooks.hook_settings(host, _arguments(choice, subject)))
            return
    except WaypostError as problem:
        console.note(str(problem))
        raise typer.Exit(1) from None
    look = partial(peek, url, identity, PEEK_LIMIT, hooks.TEXT_MAX_CHARS)
    found = _within(timeout, lambda: _unshown(HookMemory(subject), subject, look))
    if isinstance(found, _Found):
        typer.echo(found.output)
        found.memory.save(found.session_id, found.session)
    elif found is not None:
        console.note(found)


class _Found(NamedTuple):
    """What to print, and what to remember once it is printed."""

    output: str
    memory: "HookMemory"
    session_id: str
    session: "Session"


def _unshown(
    memory: "HookMemory", subject: str, look: Callable[[], "PeekResponse"]
) -> _Found | None:
    """Return the messages that the session has not been shown, or None if there are none."""
    from waypost.cli.remote.hook import Session
    from waypost.cli.rendering import hooks

    event = _event()
    if event.stop_hook_active:
        return None  # the turn has gone on once already
    before = Session() if event.begins_session else memory.session(event.session_id)
    inbox = look()
    unshown = [one for one in inbox.messages if one.id not in before.shown]
    unlisted = max(0, inbox.pending - len(inbox.messages))
    is_new = bool(unshown) or unlisted > before.unlisted
    leased = inbox.leased if inbox.leased > before.leased else 0
    chosen = hooks.choose(subject, unshown, unlisted if is_new else 0, leased)
    text = hooks.waiting_text(chosen)
    session = Session([*before.shown, *chosen.shown], inbox.leased, unlisted)
    if not text:
        memory.save(event.session_id, session)
        return None
    return _Found(hooks.hook_output(event, text), memory, event.session_id, session)


def _event() -> "HookEvent":
    """Return the event on stdin; an empty one for anything else."""
    import msgspec

    from waypost.cli.rendering.hooks import HookEvent

    try:
        return msgspec.json.decode(_stdin(), type=HookEvent)
    except (msgspec.DecodeError, RecursionError):
        return HookEvent()


def _stdin() -> bytes:
    if sys.stdin is None or sys.stdin.isatty():
        return b""
    try:
        descriptor = sys.stdin.fileno()
    except (OSError, ValueError):  # replaced by something that is no file
        return sys.stdin.read().encode()
    # Not with a buffer, whose lock would keep the process from ending while a read waits.
    content = bytearray()
    while len(content) <= EVENT_MAX_BYTES and (chunk := os.read(descriptor, 65_536)):
        content += chunk
    return bytes(content)


def _within(timeout_s: float, look: Callable[[], _Found | None]) -> _Found | str | None:
    """Return the result of `look`, or why there is none within the time."""
    results: list[_Found | str | None] = []

    def run() -> None:
        try:
            results.append(look())
        except WaypostError as problem:
            results.append(str(problem))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(timeout_s)
    return results[0] if results else f"no answer within {timeout_s:g} s"


def _arguments(choice: RelayChoice, subject: str) -> list[str]:
    key = [] if choice.key is None else ["--key", str(choice.key.absolute())]
    return [subject, "--url", choice.url or DEFAULT_URL, *key]
