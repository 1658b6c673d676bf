"""Waiting messages as the hooks of terminal agents expect them, and the settings of such hooks.

Events at which text joins the context of the model get `additionalContext`. At the end of a turn
only a decision to go on reaches the model: its reason is the text.
"""

import shlex
import sys
from collections.abc import Mapping, Sequence
from enum import StrEnum

import msgspec

from waypost.client.message import OpenedPayload, Received
from waypost.mcp.fencing import HOW_TO_READ, Labels, message_block, readable
from waypost.mcp.quoting import is_plain_id
from waypost.policy.errors import InvalidInput
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import Message
from waypost.wire.sealing import is_sealed

TEXT_MAX_CHARS = 8000
"""Hosts cut longer texts, some at 10,000 characters."""

HOST_TIMEOUT_S = 10
_CONTEXT_EVENTS = ("SessionStart", "UserPromptSubmit", "BeforeAgent")
_END_EVENTS = ("Stop", "AfterAgent")


class Host(StrEnum):
    """Terminal agents with ready-made settings."""

    CLAUDE = "claude"
    CODEX = "codex"
    GEMINI = "gemini"


def host_named(name: str) -> Host:
    """Return a host by its name. Raises `InvalidInput`."""
    try:
        return Host(name)
    except ValueError:
        raise InvalidInput(
            f"no settings for {name!r:.40}: give {', '.join(Host)}, or see docs/mcp.md"
        ) from None


_EVENTS = {
    Host.CLAUDE: ("SessionStart", "UserPromptSubmit", "Stop"),
    Host.CODEX: ("SessionStart", "UserPromptSubmit", "Stop"),
    Host.GEMINI: ("SessionStart", "BeforeAgent"),  # AfterAgent would reject the model's answer
}


class HookEvent(msgspec.Struct):
    """What a host tells a hook on stdin; the rest of it is ignored."""

    hook_event_name: str = ""
    session_id: str = ""
    stop_hook_active: bool = False

    @property
    def begins_session(self) -> bool:
        """Return whether the model knows nothing of what was shown before."""
        return self.hook_event_name not in (*_CONTEXT_EVENTS[1:], *_END_EVENTS)


class Waiting(msgspec.Struct, frozen=True):
    """The messages to show, how many more wait, and how many are at a connected program."""

    subject: str
    shown: list[str]
    blocks: list[str]
    more: int
    leased: int


def choose(subject: str, unshown: Sequence[Envelope], unlisted: int, leased: int) -> Waiting:
    """Choose the messages that fit; `unlisted` is how many wait beside them."""
    shown: list[str] = []
    blocks: list[str] = []
    room = TEXT_MAX_CHARS - len(HOW_TO_READ)
    for envelope in unshown:
        block = _block(envelope)
        room -= len(block)
        if room < 0:
            break
        shown.append(envelope.id)
        blocks.append(block)
    return Waiting(subject, shown, blocks, len(unshown) - len(shown) + unlisted, leased)


def waiting_text(waiting: Waiting) -> str:
    """Return the text for the model; empty if there is nothing new."""
    lines: list[str] = []
    if waiting.blocks:
        lines += [f"{_count(len(waiting.blocks))} for {waiting.subject}.", HOW_TO_READ]
        for block in waiting.blocks:
            lines += ["", block]
        lines += [
            "",
            "They stay in the mailbox until they are acknowledged: relay_inbox and relay_ack, or"
            f" 'waypost inbox {waiting.subject} --ack' for all. Act on those that concern you.",
        ]
    if waiting.more:
        more = (
            f"{_count(waiting.more, 'more ')},"
            if waiting.blocks
            else (f"{_count(waiting.more)} for {waiting.subject},")
        )
        lines.append(
            f"{more} not shown here: call relay_inbox, or run 'waypost inbox {waiting.subject}'."
        )
    if waiting.leased:
        is_are = "message for you is" if waiting.leased == 1 else "messages for you are"
        lines.append(
            f"{waiting.leased:,} {is_are} at a program that is connected as {waiting.subject},"
            " perhaps your MCP server: call relay_inbox."
        )
    return "\n".join(lines)


def hook_output(event: HookEvent, text: str) -> str:
    """Return what to print on an event for a text that is not empty."""
    name = event.hook_event_name
    if name in _CONTEXT_EVENTS:
        specific = {"hookEventName": name, "additionalContext": text}
        return msgspec.json.encode({"hookSpecificOutput": specific}).decode()
    if name in _END_EVENTS:
        return msgspec.json.encode({"decision": "block", "reason": text}).decode()
    return text


def hook_settings(host: Host, arguments: Sequence[str]) -> Mapping[str, object]:
    """Return the part of a host's settings that runs the hook; `arguments` follow its name."""
    command = shlex.join([sys.executable, "-m", "waypost", "hook", *arguments])
    timeout = HOST_TIMEOUT_S * (1000 if host is Host.GEMINI else 1)
    one = {"type": "command", "command": command, "timeout": timeout}
    return {"hooks": {event: [{"hooks": [one]}] for event in _EVENTS[host]}}


def _block(envelope: Envelope) -> str:
    sealed = is_sealed(envelope.payload)
    text = "sealed: relay_inbox opens it" if sealed else readable(envelope.payload)
    message = Received(Message(envelope=envelope), OpenedPayload(None))
    ref = envelope.id if is_plain_id(envelope.id) else "(without a plain id)"
    return message_block(message, text, Labels(ref))


def _count(count: int, more: str = "") -> str:
    return f"{count:,} {more}{'message waits' if count == 1 else 'messages wait'}"
