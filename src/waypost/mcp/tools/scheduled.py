"""The tool for messages that are delivered later: `relay_scheduled`."""

from typing import Annotated

from mcp.types import CallToolResult

from waypost.mcp.connection import McpConnection
from waypost.mcp.quoting import quoted
from waypost.mcp.rendering import plural, success, with_instructions
from waypost.mcp.tools import parameters
from waypost.mcp.tools.results import ScheduledEntry, ScheduledListing
from waypost.policy.bounds import scheduled_max_messages


class ScheduledTools:
    """The tool for what the agent of `connection` has scheduled."""

    def __init__(self, connection: McpConnection) -> None:
        self._connection = connection

    @with_instructions
    async def relay_scheduled(
        self, cancel: parameters.CancelIds = None
    ) -> Annotated[CallToolResult, ScheduledListing]:
        """List your messages that are delivered later, after cancelling some if you give their ids.

        These are messages that you sent with deliver_in_seconds and that are not due yet. A
        cancelled message is never delivered; one that is due already cannot be cancelled.
        """
        agent = await self._connection.agent()
        wanted = list(dict.fromkeys(cancel or ()))
        cancelled = await agent.cancel(wanted) if wanted else []
        found = await agent.scheduled()
        facts = ScheduledListing(
            messages=[
                ScheduledEntry(message_id=one.id, recipient=one.endpoint, deliver_at=one.deliver_at)
                for one in found
            ],
            cancelled=cancelled,
            not_cancelled=[one for one in wanted if one not in cancelled],
            is_complete=len(found) < scheduled_max_messages,
        )
        return success("\n".join(_lines(facts)), facts)


def _lines(facts: ScheduledListing) -> list[str]:
    lines = []
    if facts.cancelled:
        lines.append(f"Cancelled: {', '.join(facts.cancelled)}.")
    if facts.not_cancelled:
        left = ", ".join(facts.not_cancelled)
        lines.append(f"Not cancelled, because not scheduled by you or due already: {left}.")
    total = plural(len(facts.messages), "scheduled message")
    lines.append(f"{total}{'' if facts.is_complete else ', and perhaps more'}.")
    lines += (
        f"{one.message_id} to {quoted(one.recipient)} at {one.deliver_at:%Y-%m-%d %H:%M:%S} UTC"
        for one in facts.messages
    )
    if facts.messages:
        first = facts.messages[0].message_id
        lines.append(f'To cancel one: relay_scheduled(cancel=["{first}"])')
    return lines
