"""Searching messages, for the operator."""

from typing import Annotated

import msgspec

from waypost.policy.subjects import validate_pattern
from waypost.relay.inspection.paging import read_cursor
from waypost.relay.inspection.search import SearchQuery, SearchResult, SoughtOutcome
from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.wire.http_bodies import CursorText, IdText, Number, PatternText


class MessageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Search criteria: `sender` and `endpoint` may be patterns, times are µs since the epoch.

    `after` is `next` of the page before.
    """

    id: IdText | msgspec.UnsetType = msgspec.UNSET
    thread: IdText | msgspec.UnsetType = msgspec.UNSET
    sender: PatternText | msgspec.UnsetType = msgspec.UNSET
    endpoint: PatternText | msgspec.UnsetType = msgspec.UNSET
    outcome: SoughtOutcome | msgspec.UnsetType = msgspec.UNSET
    since_us: Number = 0
    until_us: Number | msgspec.UnsetType = msgspec.UNSET
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100
    after: CursorText | msgspec.UnsetType = msgspec.UNSET


async def search_messages(call: Call[MessageQuery, None]) -> Reply:
    """Find stored messages, and those that left recently."""
    query = _search_query(call.parameters)
    async with call.context.reading:
        return Reply(await call.context.relay.inspect().search(query))


def _search_query(parameters: MessageQuery) -> SearchQuery:
    given = {
        name: value
        for name, value in msgspec.structs.asdict(parameters).items()
        if value is not msgspec.UNSET
    }
    for name in ("sender", "endpoint"):
        if name in given:
            validate_pattern(given[name])
    if "after" in given:
        given["after"] = read_cursor(given["after"])
    return SearchQuery(**given)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/messages",
        access=Access.OPERATOR,
        summary="Search messages",
        description=(
            "The newest first. Pending, leased and dead messages are found at any age, and so are"
            " the messages of a `thread`; others that left their mailbox, and rejections, only in"
            " the newest part of the journal, which begins at `since_us` of the response. The next"
            " page is `after` the cursor `next`."
        ),
        tag="messages",
        handler=search_messages,
        parameters=MessageQuery,
        body=NO_BODY,
        answer=Answer(SearchResult),
    ),
)
