"""Finding messages, for the operator."""

import asyncio
from typing import Annotated, Literal

import msgspec

from waypost.policy.subjects import validate_pattern
from waypost.server.context import ServerContext
from waypost.server.http.callers import Access
from waypost.server.http.contract import NO_BODY, Answer, AnyOperation, Call, Operation, Reply
from waypost.server.http.searching import Found, Wanted, find_in_journal, find_in_memory
from waypost.wire.http_bodies import IdText, Number, PatternText

_STILL_THERE = ("pending", "leased", "dead")


class MessageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which messages: `sender` and `endpoint` may be patterns, times are µs since the epoch."""

    id: IdText | msgspec.UnsetType = msgspec.UNSET
    sender: PatternText | msgspec.UnsetType = msgspec.UNSET
    endpoint: PatternText | msgspec.UnsetType = msgspec.UNSET
    outcome: (
        Literal["pending", "leased", "dead", "rejected", "acked", "expired", "purged"]
        | msgspec.UnsetType
    ) = msgspec.UNSET
    since_us: Number = 0
    until_us: Number | msgspec.UnsetType = msgspec.UNSET
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 100


async def search_messages(call: Call[MessageQuery, None]) -> Reply:
    """What is there, and what was there lately."""
    return Reply(await _search(call.services, _wanted(call.parameters)))


async def _search(services: ServerContext, wanted: Wanted) -> Found:
    parts = services.relay.parts
    async with services.reading:
        await parts.ledger.sync()
        wanted = msgspec.structs.replace(wanted, seq=parts.ledger.state.seq)
        there = find_in_memory(parts.ledger.state, wanted)
        found = Found(messages=[], since_us=0, more=False)
        if wanted.outcome not in _STILL_THERE:
            known = {(one.id, one.endpoint) for one in there}
            found = await asyncio.to_thread(find_in_journal, parts.data.journal, wanted, known)
    every = sorted([*there, *found.messages], key=lambda one: -one.at_us)
    found.more = found.more or len(every) > wanted.limit
    found.messages = every[: wanted.limit]
    return found


def _wanted(query: MessageQuery) -> Wanted:
    given = {
        name: value
        for name, value in msgspec.structs.asdict(query).items()
        if value is not msgspec.UNSET
    }
    for name in ("sender", "endpoint"):
        if name in given:
            validate_pattern(given[name])
    return Wanted(**given)


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="GET",
        path="/v1/messages",
        access=Access.OPERATOR,
        summary="Find messages",
        description=(
            "The newest first. Those that wait, are leased or are dead are found at any age;"
            " those that are gone, and refusals, in the newest part of the journal: `since_us` in"
            " the answer says how far back that goes."
        ),
        tag="messages",
        handler=search_messages,
        parameters=MessageQuery,
        body=NO_BODY,
        answer=Answer(Found),
    ),
)
