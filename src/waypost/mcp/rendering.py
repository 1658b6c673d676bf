"""Text of tool results: quoted messages, headings, errors.

Rule 1  Text of other agents stands between two lines with a mark that is new each time and does not
        occur in the text. Its author cannot know the mark, and so cannot close the fence.
Rule 2  Invisible characters are written as escapes: a model must not read what a person looking at
        the same screen cannot see.
Rule 3  Nothing else in the text is changed or judged.
Rule 4  Text of other agents appears in the text of a result only. Hosts show models either part,
        and the structured part has no fences.
Rule 5  An expected failure is a result with an instruction, marked as an error; any other exception
        is a bug and stays one.
"""

import functools
import re
import secrets
from collections.abc import Awaitable, Callable
from typing import ParamSpec

import msgspec
from mcp.types import CallToolResult, ContentBlock, TextContent
from pydantic import BaseModel

from waypost.client.message import Message
from waypost.mcp.instructions import failure
from waypost.policy.errors import WaypostError
from waypost.policy.reserved_names import ANONYMOUS, OPERATOR, RELAY
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

_KEPT = "\n\t\u00a0\u3000"
_INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks, by their category, that show nothing; U+FE0F is kept, for it colours emoji."""


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


def message_block(message: Message, text: str) -> str:
    """Return a message as its heading and its fenced text."""
    return f"{message_heading(message, text)}\n{fence(text)}"


def message_block_bytes(message: Message, text: str) -> int:
    """Return the size of `message_block` in bytes."""
    return len(message_heading(message, text)) + 1 + len(text.encode()) + FENCE_BYTES


def message_heading(message: Message, text: str) -> str:
    """Return the line about a message: everything the relay vouches for, not the text."""
    parts = [
        f"Message {message.id}",
        f"from {_sender(message)}",
        f"sent {message.created_at:%Y-%m-%d %H:%M:%S} UTC",
        f"{len(text.encode()):,} bytes",
    ]
    if message.budget.ancestor_chain[-1:] != (message.subject,):
        parts.append(f"sent to {message.subject}, also delivered to other agents")
    if message.parent is not None:
        parts.append(f"follows from {message.parent}")
    if message.reply_to is not None:
        parts.append(f"replies go to {message.reply_to}")
    if message.problem is not None:
        parts.append("sealed, cannot be opened; the reason is below")
    return " | ".join(parts)


def _sender(message: Message) -> str:
    sender = message.sender
    if sender in _RESERVED_SENDERS:
        return f"{sender} ({_RESERVED_SENDERS[sender]})"
    if message.tier not in TIER_TEXTS:
        return f"{sender} (tier unknown)"
    return f"{sender} (tier {message.tier}, {TIER_TEXTS[Tier(message.tier)]})"


# Untrusted text


def readable(payload: object) -> str:
    """Return a payload as text: a string unchanged, anything else as JSON; escape the invisible."""
    text = payload if isinstance(payload, str) else msgspec.json.encode(payload).decode()
    if text.isascii() and text.isprintable():
        return text
    return "\n".join(_visible(line) for line in text.split("\n"))


def fence(text: str) -> str:
    """Return `text` between two lines with a new mark."""
    mark = secrets.token_hex(_MARK_BYTES)
    while mark in text:
        mark = secrets.token_hex(_MARK_BYTES)
    return f"{_BEGIN.format(mark=mark)}\n{text}\n{_END.format(mark=mark)}"


def _visible(line: str) -> str:
    if not line.isprintable():
        line = "".join(one if one.isprintable() or one in _KEPT else _escape(one) for one in line)
    return _INVISIBLE.sub(lambda found: _escape(found[0]), line)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
