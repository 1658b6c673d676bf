"""Commands that connect to a served relay as an agent: send and wait, request, listen.

Rule 1  The relay is asked for a token first, so that a failure to connect is reported at once, in
        the same words as for every other command.
Rule 2  A message is acknowledged after it was printed; otherwise it is pending again.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager, closing
from typing import Any, TypeVar

import msgspec

from waypost.cli.results import (
    Confirmation,
    ReceivedMessage,
    SendReport,
    access_denied,
    send_report,
)
from waypost.client.aio import Agent
from waypost.client.errors import (
    AlreadyConnected,
    DeliveryTimedOut,
    OperationRejected,
    RequestBlocked,
    RequestFailed,
    RequestRejected,
    RequestTimedOut,
    SendTimedOut,
)
from waypost.client.http import HttpClient, RemoteError, tls_context
from waypost.client.identity import Identity
from waypost.client.message import Message
from waypost.client.options import ClientOptions
from waypost.client.route import Route
from waypost.policy.bounds import wait_max_s
from waypost.policy.errors import AccessDenied
from waypost.policy.guard import MessagingGuardConfig
from waypost.policy.subjects import is_literal
from waypost.wire.frames import DeliveryConfirm
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.results import PublishResult

T = TypeVar("T")
OnConfirmation = Callable[[Confirmation], None]
RequestOutcome = ReceivedMessage | SendReport | RequestBlocked | RequestFailed | RequestTimedOut
"""A reply, the result of a rejected send, or why there is neither."""

FETCH_WAIT_S = 20.0
UNSEALABLE_DELAY_S = 60.0
"""A message whose payload cannot be unsealed is released for this time, so that it does not block
the messages behind it."""


class ConnectedElsewhere(RemoteError):
    """The agent already has a connection to the relay."""


class ListenOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Stop after `count` messages or `seconds`; with `ack`, acknowledge printed messages.

    With `shared`, other programs may share the mailbox.
    """

    count: int | None = None
    seconds: float | None = None
    ack: bool = True
    shared: bool = False


class ListenCallbacks(msgspec.Struct, frozen=True, kw_only=True):
    """Called while listening. `on_ready` gets the number of stored messages."""

    on_ready: Callable[[int], None]
    on_message: Callable[[ReceivedMessage], None]
    on_confirmation: OnConfirmation


def send_and_wait(
    url: str, identity: Identity, message: OutgoingMessage, wait_s: float
) -> SendReport:
    """Send a message, and wait up to `wait_s` seconds for the first confirmation."""

    async def act() -> SendReport:
        async with connected(url, identity, ClientOptions(receive="pull")) as agent:
            try:
                result = await agent.send(
                    message.subject,
                    message.payload,
                    reply_to=message.reply_to,
                    budget=message.budget,
                    message_id=message.message_id,
                    thread=message.thread,
                    delay=message.delay,
                    deliver_at=message.deliver_at,
                )
            except AccessDenied as problem:
                result = access_denied(problem)
            sent = _send_report(message.subject, result)
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
            f"{problem}; send it again with --id {problem.message_id}: it is stored once"
        ) from None


class RequestOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The time to wait for each reply, and the limits of the guard."""

    timeout_s: float
    limits: MessagingGuardConfig


def request(
    url: str,
    identity: Identity,
    messages: Iterable[OutgoingMessage],
    options: RequestOptions,
    on_outcome: Callable[[RequestOutcome], None],
    on_confirmation: OnConfirmation,
) -> None:
    """Send requests one after another, and pass the outcome of each to `on_outcome`.

    Other messages are released with a delay, so that a reply does not queue behind them.
    `on_confirmation` gets confirmations of other messages.
    """
    confirmations: list[Confirmation] = []
    answered: set[str | None] = set()

    async def act() -> None:
        guarded = ClientOptions(guard=options.limits)
        async with connected(url, identity, guarded, confirmations.append) as agent:
            releasing = asyncio.create_task(_release_all(agent, min(options.timeout_s, wait_max_s)))
            try:
                for message in messages:
                    outcome = await _outcome(agent, message, options.timeout_s)
                    if isinstance(outcome, ReceivedMessage):
                        answered.add(outcome.parent)
                    on_outcome(outcome)
            finally:
                releasing.cancel()

    try:
        asyncio.run(act())
    finally:
        for one in confirmations:
            if one.message_id not in answered:
                on_confirmation(one)


async def _outcome(agent: Agent, message: OutgoingMessage, timeout_s: float) -> RequestOutcome:
    try:
        return _received(await agent.request(message.subject, message.payload, timeout=timeout_s))
    except RequestRejected as problem:
        return _send_report(message.subject, problem.result)
    except AccessDenied as problem:
        return _send_report(message.subject, access_denied(problem))
    except (RequestBlocked, RequestFailed, RequestTimedOut) as problem:
        return problem


def listen(url: str, identity: Identity, options: ListenOptions, callbacks: ListenCallbacks) -> int:
    """Pass on messages as they arrive, until the limits of `options` or a signal.

    Returns the number of messages.
    """
    received = 0
    chosen = ClientOptions(receive="push" if options.ack else "pull", shared=options.shared)

    async def act() -> None:
        nonlocal received
        async with connected(url, identity, chosen, callbacks.on_confirmation) as agent:
            callbacks.on_ready(agent.queue_status or 0)
            async with asyncio.timeout(options.seconds):
                async for message in _messages(agent, options.ack):
                    callbacks.on_message(_received(message))
                    received += 1
                    if message.problem:
                        message.nack_nowait(UNSEALABLE_DELAY_S, release=True)
                    elif options.ack:
                        message.ack_nowait()
                    if received == options.count:
                        return

    try:
        asyncio.run(until_signal(act()))
    except TimeoutError:
        pass
    return received


@asynccontextmanager
async def connected(
    url: str,
    identity: Identity,
    options: ClientOptions,
    on_confirmation: OnConfirmation | None = None,
) -> AsyncIterator[Agent]:
    """Connect as an agent; the errors are those of every other command."""
    with closing(HttpClient(url)) as api:
        await asyncio.to_thread(api.log_in, identity)
    # What is pulled is only shown.
    options = msgspec.structs.replace(options, release_unacked=True, tls=tls_context(url))
    agent = Agent(Route.parse(url), identity, options)
    confirming: asyncio.Task[None] | None = None
    if on_confirmation is not None:  # before the first one can arrive
        confirming = asyncio.create_task(_pass_on(agent.confirmations(), on_confirmation))
    try:
        await agent.open()
        yield agent
    except AlreadyConnected:
        raise ConnectedElsewhere(
            f"{identity.subject} is already connected to {url}, and an agent has one connection,"
            " unless all of them share its mailbox: close the other one first, or listen with"
            " --shared on both"
        ) from None
    except OperationRejected as problem:
        raise RemoteError(str(problem)) from None
    finally:
        if confirming is not None:
            confirming.cancel()
        await agent.close()


async def _messages(agent: Agent, ack: bool) -> AsyncIterator[Message]:
    """Yield messages as they arrive.

    Without `ack` they are pulled: a relay that pushes would wait for their acknowledgement.
    """
    if ack:
        async for message in agent:
            yield message
    while not ack:
        for message in await agent.fetch(wait=FETCH_WAIT_S):
            yield message


async def _release_all(agent: Agent, delay_s: float) -> None:
    async for message in agent:
        message.nack_nowait(delay_s, release=True)


async def _pass_on(
    confirmations: AsyncIterator[DeliveryConfirm], on_confirmation: OnConfirmation
) -> None:
    async for one in confirmations:
        on_confirmation(Confirmation(one.message_id, one.recipient, one.was_stored))


async def until_signal(work: Coroutine[Any, Any, T]) -> T | None:
    """Return the result of `work`, or None if a signal cancelled it cleanly."""
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


def _send_report(subject: str, result: PublishResult) -> SendReport:
    return send_report(subject, result, [subject] if is_literal(subject) else [])


def _received(message: Message) -> ReceivedMessage:
    return ReceivedMessage(
        id=message.id,
        subject=message.subject,
        sender=message.sender,
        reply_to=message.reply_to,
        created_at=message.created_at,
        payload=message.payload,
        parent=message.parent,
        thread=message.thread,
        was_stored=message.was_stored,
        attempt=message.attempt,
        problem=message.problem,
    )
