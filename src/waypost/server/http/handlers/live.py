"""What is going on, as it happens, for whoever watches."""

from typing import Literal

import msgspec

from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.server.http.errors import HttpError
from waypost.server.live.sampler import Topic
from waypost.server.live.sse import MEDIA_TYPE


class LiveQuery(msgspec.Struct, forbid_unknown_fields=True):
    """What to show. `once`: how it is now, and no more."""

    show: Topic = "numbers"
    once: bool = False


class LiveEvent(msgspec.Struct, kw_only=True):
    """One event of the stream; `data` is JSON, its fields depend on `event`."""

    event: Literal["history", "sample", "standing", "breakers", "rows"]
    data: str


async def watch(call: Call[LiveQuery, None]) -> Reply:
    """A stream of events."""
    sampler, wanted = call.context.sampler, call.parameters
    if sampler.is_full:
        raise HttpError(503, "too many are watching; close another view first", reason="full")
    return Reply(sampler.stream(wanted.show, once=wanted.once), media_type=MEDIA_TYPE)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/live",
        access=Access.OPERATOR,
        summary="Watch the relay",
        description=(
            "Server-sent events, one or more a second. `numbers`: `history` (up to ten minutes of"
            " samples), then `sample`, `standing` and `breakers`. `inboxes`, `agents`: `rows`, all"
            " of them first, then those that change. A reader that is too slow misses some and is"
            " told everything again. With `once=true` it ends after the first of each."
        ),
        tag="stats",
        handler=watch,
        parameters=LiveQuery,
        body=NO_BODY,
        answer=Answer(LiveEvent, "A stream that ends when either side has enough.", MEDIA_TYPE),
    ),
)
