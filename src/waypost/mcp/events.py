"""The events extension of MCP (SEP-3415, a draft): a stream of notices for hosts that ask for it.

Rule 1  There is one kind of event, `messages.waiting`, and one way of delivery, push. An event has
        what a notice has: numbers and names, never a text.
Rule 2  No event is replayed: its `cursor` is null. The messages are in the mailbox, and a host that
        has missed an event finds them with `relay_inbox`.
Rule 3  A stream that has nothing to say sends a heartbeat, from which its host knows that it lives.
Rule 4  A host that does not read gets no second event: streams hold the newest one only.
"""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast
from uuid import uuid4

from mcp.server.context import ServerRequestContext
from mcp.server.extension import Extension, MethodBinding
from mcp.server.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    Notification,
    RequestParams,
    Result,
    ServerNotification,
)

from waypost.mcp.notices import HostNotice, Notices

HEARTBEAT_S = 20.0
STREAMS_MAX = 16
EVENT = "messages.waiting"
NOT_FOUND = -32023
"""The code of an unknown event in the draft."""

_EVENTS = [
    {
        "name": EVENT,
        "description": "Messages of other agents have arrived. Call relay_inbox to read them.",
        "delivery": ["push"],
        "inputSchema": {"type": "object", "properties": {}},
        "payloadSchema": {
            "type": "object",
            "properties": {
                "subject": {"type": "string", "description": "The agent they are for."},
                "unread": {"type": "integer", "description": "How many are unread."},
                "text": {"type": "string", "description": "The same in words, for a model."},
            },
            "required": ["subject", "unread", "text"],
        },
    }
]

Context = ServerRequestContext[Any, Any]


class ListParams(RequestParams):
    """The parameters of `events/list`."""

    cursor: str | None = None


class StreamParams(RequestParams):
    """The parameters of `events/stream` that matter here."""

    name: str
    arguments: dict[str, Any] | None = None


class EventsExtension(Extension):
    """Serves `events/list` and `events/stream` with the notices of one server."""

    identifier = "io.modelcontextprotocol/events"

    def __init__(self, notices: Notices) -> None:
        self._notices = notices

    def methods(self) -> Sequence[MethodBinding]:
        """Return the methods of the extension."""
        return (
            MethodBinding("events/list", ListParams, self._list),
            MethodBinding("events/stream", StreamParams, self._stream),
        )

    async def _list(self, _: Context, asked: ListParams) -> dict[str, Any]:
        if asked.cursor is not None:
            raise MCPError(INVALID_PARAMS, "no such page: there is one, without a cursor")
        return {"events": _EVENTS}

    async def _stream(self, context: Context, asked: StreamParams) -> Result:
        """Send an event for each notice until the host cancels the request."""
        if asked.name != EVENT:
            raise MCPError(
                NOT_FOUND, f"no such event: subscribe to {EVENT}", data={"kind": "event"}
            )
        if context.request_id is None:
            raise MCPError(INVALID_REQUEST, "events/stream needs a request id")
        if len(self._notices.streams) >= STREAMS_MAX:
            raise MCPError(INVALID_REQUEST, f"too many streams: {STREAMS_MAX} at most, cancel some")
        news: asyncio.Queue[HostNotice] = asyncio.Queue(1)
        with self._notices.streaming(news):
            await _notify(context, "active", {"cursor": None, "truncated": False})
            while True:
                try:
                    notice = await asyncio.wait_for(news.get(), HEARTBEAT_S)
                except TimeoutError:
                    await _notify(context, "heartbeat", {"cursor": None})
                else:
                    await _notify(context, "event", _occurrence(notice))


def _occurrence(notice: HostNotice) -> dict[str, Any]:
    return {
        "eventId": str(uuid4()),
        "name": EVENT,
        "timestamp": datetime.now(UTC).isoformat(),
        "data": {"subject": notice.subject, "unread": notice.unread, "text": notice.text},
        "cursor": None,
    }


async def _notify(context: Context, kind: str, params: dict[str, Any]) -> None:
    """Send a notification of the extension on the stream of a request."""
    params = {**params, "_meta": {SUBSCRIPTION_ID_META_KEY: context.request_id}}
    notification = Notification[dict[str, Any], str](
        method=f"notifications/events/{kind}", params=params
    )
    await context.session.send_notification(
        cast("ServerNotification", notification), related_request_id=context.request_id
    )
