"""Being an agent at a served relay for a while: send and wait, ask and wait, or listen.

Rule 1  The relay is asked for a token first: whoever cannot connect is told why at once, in the
        words of every other verb.
Rule 2  Mail is acknowledged after it was shown, and what was not shown waits again.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, closing
from typing import Any, Literal, TypeVar

import msgspec

from waypost.cli.facts import Confirmation, Heard, Sent
from waypost.cli.results import denied, sent_of
from waypost.client.address import parse_address
from waypost.client.aio import Agent
from waypost.client.errors import (
    AlreadyConnected,
    DeliveryTimedOut,
    OperationRejected,
    RequestRejected,
    SendTimedOut,
)
from waypost.client.http import HttpClient, RemoteError, tls_context
from waypost.client.identity import Identity
from waypost.client.message import Message
from waypost.client.options import ClientOptions
from waypost.policy.bounds import wait_max_s
from waypost.policy.errors import AccessDenied
from waypost.policy.subjects import is_literal
from waypost.wire.frames import DeliveryConfirm
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.results import PublishResult

T = TypeVar("T")
Receive = Literal["push", "pull"]

FETCH_WAIT_S = 20.0
SEAL_BROKEN_AGAIN_S = 60.0
"""What cannot be opened is not acknowledged; so long it does not keep the rest from coming."""


class ConnectedElsewhere(RemoteError):
    """The agent is connected already, from somewhere else."""


class Listening(msgspec.Struct, frozen=True, kw_only=True):
    """How long to listen: until `count` messages or `seconds`, and whether to `ack` them."""

    count: int | None = None
    seconds: float | None = None
    ack: bool = True


class Listener(msgspec.Struct, frozen=True, kw_only=True):
    """What to do with what comes. `ready` is told how many messages are stored."""

    ready: Callable[[int], None]
    heard: Callable[[Heard], None]
    confirmed: Callable[[Confirmation], None]


def send_and_wait(url: str, identity: Identity, message: OutgoingMessage, wait_s: float) -> Sent:
    """Send, and wait `wait_s` for the first who confirms it."""

    async def act() -> Sent:
        async with _connected(url, identity, "pull") as agent:
            try:
                result = await agent.send(
                    message.subject,
                    message.payload,
                    reply_to=message.reply_to,
                    message_id=message.message_id,
                )
            except AccessDenied as problem:
                result = denied(problem)
            sent = _sent(message.subject, result)
            if not sent.delivered_to:
                return sent
            try:
                confirm = await agent.delivered(sent.message_id, wait_s)
            except DeliveryTimedOut:
                return sent
            return msgspec.structs.replace(
                sent, confirmed_by=confirm.recipient, was_stored=confirm.was_stored
            )

    try:
        return asyncio.run(act())
    except ConnectedElsewhere as problem:
        raise ConnectedElsewhere(f"{problem}, or send without --wait") from None
    except SendTimedOut as problem:
        raise RemoteError(
            f"{problem}; send it again with --id {problem.message_id}, and it is stored once"
        ) from None


def ask(
    url: str,
    identity: Identity,
    message: OutgoingMessage,
    timeout_s: float,
    confirmed: Callable[[Confirmation], None],
) -> Heard | Sent:
    """Send a request and wait for its reply; what became of it if nobody got it.

    Other mail is given back, not before the wait is over, or the reply would wait behind it.
    `confirmed` is told of other messages that were confirmed. Raises `RequestTimedOut`.
    """
    confirmations: list[Confirmation] = []
    answer: Heard | Sent | None = None

    async def act() -> Heard | Sent:
        async with _connected(url, identity, "push", confirmations.append) as agent:
            others = asyncio.create_task(_give_back(agent, min(timeout_s, wait_max_s)))
            try:
                return _heard(
                    await agent.request(message.subject, message.payload, timeout=timeout_s)
                )
            except RequestRejected as problem:
                return _sent(message.subject, problem.result)
            except AccessDenied as problem:
                return _sent(message.subject, denied(problem))
            finally:
                others.cancel()

    try:
        answer = asyncio.run(act())
        return answer
    finally:
        request_id = answer.parent if isinstance(answer, Heard) else None
        for one in confirmations:
            if one.message_id != request_id:
                confirmed(one)


def listen(url: str, identity: Identity, wanted: Listening, listener: Listener) -> int:
    """Hand on messages as they come, until enough of them did or a signal says to stop.

    Gives how many it were.
    """
    heard = 0
    receive: Receive = "push" if wanted.ack else "pull"

    async def act() -> None:
        nonlocal heard
        async with _connected(url, identity, receive, listener.confirmed) as agent:
            listener.ready(agent.queue_status or 0)
            async with asyncio.timeout(wanted.seconds):
                async for message in _messages(agent, wanted.ack):
                    listener.heard(_heard(message))
                    heard += 1
                    if message.problem:
                        message.nack_nowait(SEAL_BROKEN_AGAIN_S)
                    elif wanted.ack:
                        message.ack_nowait()
                    if heard == wanted.count:
                        return

    try:
        asyncio.run(_until_signal(act()))
    except TimeoutError:
        pass
    return heard


@asynccontextmanager
async def _connected(
    url: str,
    identity: Identity,
    receive: Receive,
    confirmed: Callable[[Confirmation], None] | None = None,
) -> AsyncIterator[Agent]:
    with closing(HttpClient(url)) as api:
        await asyncio.to_thread(api.log_in, identity)
    agent = Agent(
        parse_address(url), identity, ClientOptions(receive=receive, tls=tls_context(url))
    )
    confirming: asyncio.Task[None] | None = None
    if confirmed is not None:  # before the first of them can come
        confirming = asyncio.create_task(_tell(agent.confirmations(), confirmed))
    try:
        await agent.open()
        yield agent
    except AlreadyConnected:
        raise ConnectedElsewhere(
            f"{identity.subject} is connected to {url} already, and there is one connection for"
            " each agent: end the other one first"
        ) from None
    except OperationRejected as problem:
        raise RemoteError(str(problem)) from None
    finally:
        if confirming is not None:
            confirming.cancel()
        await agent.close()


async def _messages(agent: Agent, ack: bool) -> AsyncIterator[Message]:
    """Messages as they come; those that are not acknowledged are asked for, or the relay would
    wait for their confirmation."""
    if ack:
        async for message in agent:
            yield message
    while not ack:
        for message in await agent.fetch(wait=FETCH_WAIT_S):
            yield message


async def _give_back(agent: Agent, delay_s: float) -> None:
    async for message in agent:
        message.nack_nowait(delay_s)


async def _tell(
    confirmations: AsyncIterator[DeliveryConfirm], confirmed: Callable[[Confirmation], None]
) -> None:
    async for one in confirmations:
        confirmed(Confirmation(one.message_id, one.recipient, one.was_stored))


async def _until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives; None if a signal ended it, and then it has ended cleanly."""
    task = asyncio.ensure_future(work)
    loop = asyncio.get_running_loop()
    for one in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(one, task.cancel)
    try:
        return await task
    except asyncio.CancelledError:
        return None
    finally:
        for one in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(one)


def _sent(subject: str, result: PublishResult) -> Sent:
    return sent_of(subject, result, [subject] if is_literal(subject) else [])


def _heard(message: Message) -> Heard:
    return Heard(
        id=message.id,
        subject=message.subject,
        sender=message.sender,
        reply_to=message.reply_to,
        created_at=message.created_at,
        payload=message.payload,
        parent=message.parent,
        was_stored=message.was_stored,
        problem=message.problem,
    )
