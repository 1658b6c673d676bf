"""Answers of tools: text for the model, facts beside it where a program may want them.

Rule 1  What others wrote is in the text only, fenced. Programs show models either part, and the
        facts have no fences.
Rule 2  Whatever goes wrong on purpose is an answer with an instruction, marked as an error;
        anything else is a bug and stays an exception.
"""

import functools
from collections.abc import Awaitable, Callable
from typing import ParamSpec

from mcp.types import CallToolResult, ContentBlock, TextContent
from pydantic import BaseModel

from waypost.mcp.instructions import failure
from waypost.policy.errors import WaypostError

P = ParamSpec("P")


def answer(text: str, facts: BaseModel | None = None) -> CallToolResult:
    """What was asked for."""
    return CallToolResult(content=_content(text), structured_content=_dumped(facts))


def problem(text: str, facts: BaseModel | None = None) -> CallToolResult:
    """It was not done; the text says what to do."""
    return CallToolResult(content=_content(text), structured_content=_dumped(facts), is_error=True)


def instructive(
    tool: Callable[P, Awaitable[CallToolResult]],
) -> Callable[P, Awaitable[CallToolResult]]:
    """`tool`, whose failures are instructions."""

    @functools.wraps(tool)
    async def run(*args: P.args, **kwargs: P.kwargs) -> CallToolResult:
        try:
            return await tool(*args, **kwargs)
        except WaypostError as wrong:
            return problem(failure(wrong))

    return run


def plural(count: int, what: str) -> str:
    """`1 message`, `2 messages`."""
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _content(text: str) -> list[ContentBlock]:
    return [TextContent(type="text", text=text)]


def _dumped(facts: BaseModel | None) -> dict[str, object] | None:
    return None if facts is None else facts.model_dump(mode="json")
