"""Results of tools.

Rule 1  Text of other agents appears in the text of a result only (`fencing`). Hosts show models
        either part, and the structured part has no fences.
Rule 2  An expected failure is a result with an instruction, marked as an error; any other exception
        is a bug and stays one.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from mcp.types import CallToolResult, ContentBlock, TextContent
from pydantic import BaseModel

from waypost.mcp.instructions import failure
from waypost.policy.errors import WaypostError

P = ParamSpec("P")


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


def text_of(result: CallToolResult) -> str:
    """Return the text of a result."""
    return "\n".join(one.text for one in result.content if isinstance(one, TextContent))


def plural(count: int, noun: str) -> str:
    """Return `1 message`, `2 messages`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def _content(text: str) -> list[ContentBlock]:
    return [TextContent(type="text", text=text)]


def _dumped(facts: BaseModel | None) -> dict[str, object] | None:
    return None if facts is None else facts.model_dump(mode="json")
