"""The story of a message, as far as it concerns whoever asks.

Rule 1  The operator sees every check with its numbers.
Rule 2  A sender sees what became of what it sent. A recipient sees what happened in its mailbox.
        Nobody else learns that the message exists.
Rule 3  Agents see neither checks nor numbers: they would tell a sender its tier and how full a
        mailbox is.
"""

import asyncio
from pathlib import Path

from waypost.relay.journal.history import find_events
from waypost.server.context import ServerContext
from waypost.server.http.callers import Caller
from waypost.wire.events import Accepted, AnyEvent, Rejected
from waypost.wire.http_bodies import HistoryItem, MessageHistoryResponse
from waypost.wire.identifiers import validate_message_id


async def tell_story(
    services: ServerContext, caller: Caller, message_id: str
) -> MessageHistoryResponse | None:
    """Everything about `message_id` that is the caller's to know; None if that is nothing."""
    validate_message_id(message_id)
    relay = services.relay
    async with services.reading:
        if caller.is_operator:
            story = await relay.explain(message_id)
            steps = [
                HistoryItem(at_us=s.at_us, kind=s.kind, endpoint=s.endpoint, text=s.text, seq=s.seq)
                for s in story.steps
            ]
        else:
            await relay.parts.ledger.sync()
            journal = relay.parts.data.journal
            steps = await asyncio.to_thread(_steps_for, caller.subject, journal, message_id)
    return MessageHistoryResponse(message_id=message_id, steps=steps) if steps else None


def _steps_for(agent: str, journal: Path, message_id: str) -> list[HistoryItem]:
    """What `agent` may know. Ids are chosen by senders: another may have used the same."""
    steps, mine = [], {agent}
    for event in find_events(journal, message_id):
        endpoint = str(getattr(event, "endpoint", ""))
        if isinstance(event, Accepted | Rejected):
            if event.sender == agent:
                mine.add(endpoint)
            elif endpoint != agent:
                mine.discard(endpoint)
                continue
        if endpoint in mine:
            steps.append(
                HistoryItem(
                    at_us=event.at_us, kind=_kind(event), endpoint=endpoint, text=_words(event)
                )
            )
    return steps


def _kind(event: AnyEvent) -> str:
    return str(type(event).__struct_config__.tag)


def _words(event: AnyEvent) -> str:
    if isinstance(event, Accepted):
        where = "stored" if event.endpoint else "nobody was there"
        return f"{event.sender} -> {event.subject}: {where}"
    if isinstance(event, Rejected):
        return f"{event.sender} -> {event.subject}: {event.reason}"
    return ""
