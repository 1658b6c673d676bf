"""Publishing, one message or many, and the history of a message.

Rule 1  The operator sees every check with its figures.
Rule 2  A sender sees the outcome of what it sent. A recipient sees what happened in its mailbox.
        No other agent learns that the message exists.
Rule 3  The same holds for threads: an agent sees the messages it sent or received, no others.
Rule 4  Agents see neither checks nor figures: these would reveal a sender's tier and how full a
        mailbox is. The sender of a message to a pattern does not see which endpoints match.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from waypost.policy.bounds import (
    publish_many_max_messages,
    rejected_pause_max_ms,
    turn_max_messages,
)
from waypost.policy.budgets import without_ancestors
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import ANONYMOUS, reject_reserved
from waypost.policy.subjects import is_literal
from waypost.relay.inspection.history import (
    Attempts,
    arrival_of,
    describe_history,
    fold_attempts,
    thread_of,
)
from waypost.relay.relay import Draft, Relay
from waypost.server.http.callers import Access, Caller, client_address
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Body,
    Call,
    NoParameters,
    Operation,
    Reply,
)
from waypost.server.http.errors import HttpError
from waypost.wire.envelopes import instant
from waypost.wire.events import Accepted, AnyEvent, Queued, Rejected
from waypost.wire.history_bodies import HistoryItem, MessageHistoryResponse, Thread
from waypost.wire.http_bodies import IdText, NewMessage, NewMessages, PublishResults
from waypost.wire.identifiers import validate_message_id, validate_thread
from waypost.wire.problems import STATUS, discreet, problem_of
from waypost.wire.results import PublishResult

REJECTED_BATCHES_TEXT = (
    "rate limit exceeded: the last batch of this sender was rejected, and others like it wait; send"
    " it again later, in smaller batches"
)


class MessagePath(msgspec.Struct, forbid_unknown_fields=True):
    """The id of a message."""

    id: IdText


async def publish(call: Call[NoParameters, NewMessage | NewMessages]) -> Reply:
    """Publish one message and return its result or error, or many and return their results."""
    relay, sender = call.context.relay, call.caller.subject
    network = ""
    if sender == ANONYMOUS:  # many callers share this name
        network = call.context.authenticator.network_key(client_address(call.request.scope))
    show, note_of = call.context.options.show_pressure, call.context.directory.note_of
    if isinstance(call.body, NewMessages):
        throttle, key = call.context.throttle, f"{sender} {network}"
        if throttle.applies_to(key) and throttle.is_crowded:
            await asyncio.sleep(rejected_pause_max_ms / 1000)
            wait_ms = rejected_pause_max_ms
            raise HttpError(
                429, REJECTED_BATCHES_TEXT, reason=Reason.RATE_LIMITED, retry_after_ms=wait_ms
            )
        rejected = True  # so is a batch with an invalid message
        try:
            async with throttle.turn(key):
                results = await _publish_many(relay, call.body.messages, sender, network)
            rejected = all(map(_is_rejected, results))
        finally:
            throttle.record(key, rejected=rejected)
        if not show:
            both = zip(results, call.body.messages, strict=True)
            results = [discreet(one, message.subject) for one, message in both]
        for one, message in zip(results, call.body.messages, strict=True):
            one.never_connected = note_of(sender, message.subject, one)
        return Reply(PublishResults(results=results))
    draft = await _draft(relay, call.body, sender, network)
    result = await relay.publish_draft(draft)
    shown = result if show else discreet(result, draft.subject)
    if _is_rejected(shown):
        raise _rejection(shown)
    shown.never_connected = note_of(sender, draft.subject, result)
    return Reply(shown)


async def _publish_many(
    relay: Relay, messages: Sequence[NewMessage], sender: str, network: str
) -> list[PublishResult]:
    drafts: list[Draft] = []
    for one in messages:
        if len(drafts) % turn_max_messages == turn_max_messages - 1:
            await asyncio.sleep(0)
        drafts.append(await _draft(relay, one, sender, network))
    return await relay.publish_many(drafts)


async def explain_message(call: Call[MessagePath, None]) -> Reply:
    """Return the history of a message; to an agent, only the part that concerns it."""
    message_id = validate_message_id(call.parameters.id)
    relay, caller, arrival = call.context.relay, call.caller, None
    async with call.context.reading:
        if caller.is_operator:
            events = await relay.inspect().events_of(message_id)
            arrival = arrival_of(events)
            history = describe_history(message_id, events)
            thread = history.thread
            steps = [
                HistoryItem(at_us=s.at_us, kind=s.kind, endpoint=s.endpoint, text=s.text, seq=s.seq)
                for s in history.steps
            ]
        else:
            events = await relay.inspect().events_of(message_id)
            visible = list(_visible(caller.subject, fold_attempts(events)))
            thread = thread_of(event for event, _ in visible)
            steps = [_item(event, shown_as) for event, shown_as in visible]
    if not steps:
        raise HttpError(404, _none_found("message", caller))
    response = MessageHistoryResponse(message_id=message_id, steps=steps, thread=thread)
    if arrival is not None:
        response.parent = arrival.parent
        response.payload = arrival.payload
    return Reply(response)


def _visible(
    agent: str, events: Iterable[AnyEvent | Attempts]
) -> Iterator[tuple[AnyEvent | Attempts, str]]:
    """Yield what `agent` may see, and the endpoint to show with it.

    Senders choose ids: another may have used the same. A scheduled message for `agent` is not
    shown to it before it is due.
    """
    shown_as = {agent: agent}
    scheduled: Accepted | Rejected | None = None
    for event in events:
        endpoint = str(getattr(event, "endpoint", ""))
        if isinstance(event, Accepted | Rejected):
            if event.sender == agent:
                is_own = endpoint == agent or is_literal(event.subject)
                shown_as[endpoint] = endpoint if is_own else event.subject
            elif endpoint != agent or event.due_us:
                shown_as.pop(endpoint, None)
                scheduled = event if endpoint == agent else scheduled
                continue
            else:
                shown_as[agent] = agent
        elif isinstance(event, Queued) and endpoint == agent and scheduled is not None:
            shown_as[agent] = agent
            yield scheduled, agent
            scheduled = None
        if endpoint in shown_as:
            yield event, shown_as[endpoint]


def _item(event: AnyEvent | Attempts, shown_as: str) -> HistoryItem:
    if isinstance(event, Attempts):
        return HistoryItem(at_us=event.at_us, kind="returned", endpoint=shown_as, text=event.text)
    kind = str(type(event).__struct_config__.tag)
    return HistoryItem(at_us=event.at_us, kind=kind, endpoint=shown_as, text=_describe(event))


def _describe(event: AnyEvent) -> str:
    if isinstance(event, Accepted):
        outcome = "stored" if event.endpoint else "no recipient"
        due = f", due at {instant(event.due_us):%Y-%m-%d %H:%M:%S} UTC" if event.due_us else ""
        return f"{event.sender} -> {event.subject}: {outcome}{due}"
    if isinstance(event, Rejected):
        return f"{event.sender} -> {event.subject}: {event.reason}"
    return ""


def _is_rejected(result: PublishResult) -> bool:
    return bool(result.rejected) and not result.delivered_to


def _rejection(result: PublishResult) -> HttpError:
    """Return the error of a publish that was rejected as a whole; the first reason decides."""
    first = result.rejected[0]
    problem = problem_of(first, result.retry_after_ms)
    return HttpError(
        STATUS[first.reason],
        problem.error,
        reason=problem.reason,
        retry_after_ms=problem.retry_after_ms,
    )


async def _draft(relay: Relay, message: NewMessage, sender: str, network: str) -> Draft:
    reject_reserved(message.subject, message.reply_to)
    budget = None
    if message.budget is not None:
        budget = without_ancestors(msgspec.to_builtins(message.budget))
    parent = None
    if message.parent is not None:
        validate_message_id(message.parent.id)
        parent = await relay.inspect().parents.search(sender, message.parent.id)
    return Draft(
        subject=message.subject,
        payload=message.payload,
        sender=sender,
        network=network,
        reply_to=message.reply_to,
        budget=budget,
        parent=parent,
        message_id=message.message_id,
        thread=message.thread,
        delay=message.delay,
        deliver_at=message.deliver_at,
    )


class ThreadPath(msgspec.Struct, forbid_unknown_fields=True):
    """The id of a thread."""

    id: IdText


def _none_found(what: str, caller: Caller) -> str:
    if caller.is_operator:
        return f"no such {what} in the journal: check the id; old segments are deleted"
    return f"no such {what} among the messages you sent or received"


async def read_thread(call: Call[ThreadPath, None]) -> Reply:
    """Return the messages of a thread; to an agent, only those it sent or received."""
    thread = validate_thread(call.parameters.id)
    caller, inspector = call.caller, call.context.relay.inspect()
    async with call.context.reading:
        agent = None if caller.is_operator else caller.subject
        found = await inspector.thread(thread, agent)
    if not found.messages:
        raise HttpError(404, _none_found("thread", caller))
    return Reply(found)


class _Peek(msgspec.Struct):
    messages: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


_one = msgspec.json.Decoder(NewMessage).decode
_many = msgspec.json.Decoder(NewMessages).decode
_peek = msgspec.json.Decoder(_Peek).decode


def _read(content: bytes) -> NewMessage | NewMessages:
    """Decode one message, the most frequent case; only if that fails, try many."""
    try:
        return _one(content)
    except msgspec.ValidationError as problem:
        try:
            is_many = _peek(content).messages is not msgspec.UNSET
        except msgspec.ValidationError:
            is_many = False
        if not is_many:
            raise problem from None
    return _many(content)


_REJECTIONS = {
    STATUS[Reason.ACCESS_DENIED]: "An access rule forbids it.",
    STATUS[Reason.BUDGET_EXCEEDED]: (
        "Its budget does not allow the delivery, and it is a dead letter; or its pattern matches"
        " more than `maxFanout` endpoints."
    ),
    STATUS[Reason.RATE_LIMITED]: (
        "Over the sender's rate limit (with `Retry-After`), mailbox full, or over the sender's"
        " quota in that inbox; the text is the same in every tier."
    ),
    STATUS[Reason.CIRCUIT_OPEN]: "The recipient's circuit breaker is open, or the disk is full.",
}

OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/messages",
        access=Access.PUBLISHER,
        summary="Publish messages",
        description=(
            'One message, or `{"messages": [...]}` with up to'
            f" {publish_many_max_messages:,} of them at once. On disk when the response"
            " arrives. Many return their results, unless their sender floods the relay (429); one"
            " message that was not stored anywhere returns the status of its rejection."
        ),
        tag="messages",
        handler=publish,
        parameters=NoParameters,
        body=Body(_read, (NewMessage, NewMessages), carries_messages=True),
        answer=Answer(PublishResult, "The result, or the result of each.", or_kind=PublishResults),
        rejections=_REJECTIONS,
    ),
    Operation(
        method="GET",
        path="/v1/messages/{id}",
        access=Access.AGENT,
        summary="History of a message",
        description="For the operator, the sender and the recipients.",
        tag="messages",
        handler=explain_message,
        parameters=MessagePath,
        body=NO_BODY,
        answer=Answer(MessageHistoryResponse),
    ),
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
