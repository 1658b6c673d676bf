"""Text of tool results: quoted messages, headings, errors.

Rule 1  Text of other agents stands between two lines with a mark that is new each time and does not
        occur in the text. Its author cannot know the mark, and so cannot close the fence.
Rule 2  Names of other agents stand outside of it, quoted and marked as such (`quoting`).
Rule 3  Invisible characters are written as escapes. Nothing else in a text is changed or judged.
Rule 4  Text of other agents appears in the text of a result only. Hosts show models either part,
        and the structured part has no fences.
Rule 5  An expected failure is a result with an instruction, marked as an error; any other exception
        is a bug and stays one.
"""

import functools
import secrets
from collections.abc import Awaitable, Callable
from typing import ParamSpec

import msgspec
from mcp.types import CallToolResult, ContentBlock, TextContent
from pydantic import BaseModel

from waypost.client.message import Message
from waypost.mcp.instructions import failure
from waypost.mcp.quoting import quoted, visible
from waypost.policy.errors import WaypostError
from waypost.policy.reserved_names import ANONYMOUS, OPERATOR, RELAY
from waypost.policy.subjects import is_literal
from waypost.policy.tiers import Tier

P = ParamSpec("P")

TIER_TEXTS: dict[Tier, str] = {
    Tier.UNKNOWN: "unknown: you have never written to them",
    Tier.ACKNOWLEDGED: "acknowledged: you have written to them, but not lately",
    Tier.ACTIVE: "active: you have written to each other lately",
}

_RESERVED_SENDERS = {
    ANONYMOUS: "an anonymous sender: could be anyone",
    OPERATOR: "the operator of the relay",
    RELAY: "the relay itself",
}

_MARK_BYTES = 8
_BEGIN = "-----BEGIN UNTRUSTED {mark}-----"
_END = "-----END UNTRUSTED {mark}-----"

FENCE_BYTES = len(_BEGIN.format(mark="")) + len(_END.format(mark="")) + 4 * _MARK_BYTES + 2
"""Bytes a fence adds to its text."""


# Tool results


def success(text: str, facts: BaseModel | None = None) -> CallToolResult:
    """Return the result of a tool that did its work."""
    return CallToolResult(content=_content(text), structured_content=_dumped(facts))


def error(text: str, facts: BaseModel | None = None) -> CallToolResult:
    """Return the result of a tool that did not; `text` has the instruction."""
    return CallToolResult(content=_content(text), structured_content=_dumped(facts), is_error=True)


def with_instructions(
    tool: Callable[P, Awaitable[CallToolResult]],
) -> Callable[P, Awaitable[CallToolResult]]:
    """Wrap `tool` so that each `WaypostError` becomes an error result with an instruction."""

    @functools.wraps(tool)
    async def run(*args: P.args, **kwargs: P.kwargs) -> CallToolResult:
        try:
            return await tool(*args, **kwargs)
        except WaypostError as problem:
            return error(failure(problem))

    return run


def plural(count: int, noun: str) -> str:
    """Return `1 message`, `2 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _content(text: str) -> list[ContentBlock]:
    return [TextContent(type="text", text=text)]


def _dumped(facts: BaseModel | None) -> dict[str, object] | None:
    return None if facts is None else facts.model_dump(mode="json")


# Messages


class Labels(msgspec.Struct, frozen=True):
    """What this process calls a message: `ref` in place of its id, and the own message it answers,
    if any. `thread` is the conversation, if the message does not begin it."""

    ref: str
    answers: str | None = None
    thread: str | None = None


def message_block(message: Message, text: str, labels: Labels) -> str:
    """Return a message as its heading and its fenced text."""
    return f"{message_heading(message, text, labels)}\n{fence(text)}"


def message_block_bytes(message: Message, text: str, labels: Labels) -> int:
    """Return the size of `message_block` in bytes."""
    heading = message_heading(message, text, labels)
    return len(heading.encode()) + 1 + len(text.encode()) + FENCE_BYTES


def message_heading(message: Message, text: str, labels: Labels) -> str:
    """Return the line about a message: everything the relay vouches for, not the text.

    A parent is mentioned only if this agent sent it: the sender may claim any other.
    """
    parts = [
        f"Message {labels.ref}",
        f"from {_sender(message)}",
        f"sent {message.created_at:%Y-%m-%d %H:%M:%S} UTC",
        f"{len(text.encode()):,} bytes",
    ]
    if message.attempt > 1:
        parts.append(f"attempt {message.attempt:,}: it was returned unprocessed before")
    if not is_literal(message.subject):
        parts.append(f"sent to {quoted(message.subject)}, also delivered to other agents")
    if labels.answers is not None:
        parts.append(f"answers your message {labels.answers}")
    if labels.thread is not None:
        parts.append(f"thread {labels.thread}")
    if message.reply_to is not None:
        parts.append(f"its sender wants replies to go to {quoted(message.reply_to)}")
    if message.problem is not None:
        parts.append("sealed, cannot be opened; the reason is below")
    return " | ".join(parts)


def _sender(message: Message) -> str:
    sender = message.sender
    if sender in _RESERVED_SENDERS:
        return f"{sender} ({_RESERVED_SENDERS[sender]})"
    if message.tier not in TIER_TEXTS:
        return f"the agent named {quoted(sender)} (tier unknown)"
    tier = f"tier {message.tier}, {TIER_TEXTS[Tier(message.tier)]}"
    return f"the agent named {quoted(sender)} ({tier})"


# Untrusted text


def readable(payload: object) -> str:
    """Return a payload as text: a string unchanged, anything else as JSON; escape the invisible."""
    text = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(visible(line) for line in text.split("\n"))


def fence(text: str) -> str:
    """Return `text` between two lines with a new mark."""
    mark = secrets.token_hex(_MARK_BYTES)
    while mark in text:
        mark = secrets.token_hex(_MARK_BYTES)
    return f"{_BEGIN.format(mark=mark)}\n{text}\n{_END.format(mark=mark)}"
