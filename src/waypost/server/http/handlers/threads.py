"""Threads: the messages of one conversation, in order.

Rule 1  The operator sees all of them.
Rule 2  An agent sees those it sent or received, with their outcomes, and no others. The sender of a
        message to a pattern does not see which endpoints match.
"""

import msgspec

from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.server.http.errors import HttpError
from waypost.wire.history_bodies import Thread
from waypost.wire.http_bodies import IdText
from waypost.wire.identifiers import validate_thread


class ThreadPath(msgspec.Struct, forbid_unknown_fields=True):
    """The id of a thread."""

    id: IdText


async def read_thread(call: Call[ThreadPath, None]) -> Reply:
    """Return the messages of a thread; to an agent, only those it sent or received."""
    thread = validate_thread(call.parameters.id)
    caller, inspector = call.caller, call.context.relay.inspect()
    async with call.context.reading:
        agent = None if caller.is_operator else caller.subject
        found = await inspector.thread(thread, agent)
    if not found.messages:
        raise HttpError(404, "no such thread among the messages you sent or received")
    return Reply(found)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/threads/{id}",
        access=Access.AGENT,
        summary="Messages of a thread",
        description=(
            "The messages of one conversation in order, each with its outcome. For the operator;"
            " an agent sees those it sent or received."
        ),
        tag="messages",
        handler=read_thread,
        parameters=ThreadPath,
        body=NO_BODY,
        answer=Answer(Thread),
    ),
)
