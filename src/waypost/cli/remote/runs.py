"""Runs a command for each message of an agent: `listen --exec`.

Rule 1  The payload goes to stdin, attributes of the message to the environment. Nothing of a
        message becomes part of the command line. The operator's token is not passed on.
Rule 2  Exit code 0 acknowledges the message. Any other returns it, as a delivery that failed, with
        the last line of stderr.
Rule 3  The lease is kept while the command runs. A signal to stop ends the command, and the message
        is released: the delivery does not count.
Rule 4  With `reply`, the output is sent as the answer before the message is acknowledged. Each
        delivery sends it under the same id, so that it is stored once. A message without calls left
        for an answer is returned, and the command does not run.
"""

import asyncio
import hashlib
import os
import time
from collections.abc import Callable
from typing import Literal

import msgspec

from waypost.cli.remote import child_process
from waypost.cli.remote.agent import (
    FETCH_WAIT_S,
    UNSEALABLE_DELAY_S,
    ListenOptions,
    connected,
    until_signal,
)
from waypost.cli.results import CommandRun
from waypost.client.aio import Agent
from waypost.client.errors import OperationRejected
from waypost.client.identity import Identity
from waypost.client.message import Message
from waypost.client.options import ClientOptions
from waypost.policy.errors import WaypostError
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import is_reserved
from waypost.wire.printable import error_text, printable
from waypost.wire.results import PublishResult

_ATTRIBUTES = ("ID", "SENDER", "SENT_TO", "REPLY_TO", "PARENT", "THREAD", "ATTEMPT", "CREATED_AT")
_BUDGET = ("CALLS_LEFT", "HOPS_LEFT", "EXPIRES_AT_MS")
_NOT_INHERITED = {
    "WAYPOST_DATA_DIR",
    "WAYPOST_OPERATOR_TOKEN",
    "WAYPOST_OPERATOR_TOKEN_FILE",
    *(f"WAYPOST_{name}" for name in (*_ATTRIBUTES, *_BUDGET)),
}
WAIT_MAX_S = 300.0
_FINAL = {Reason.ACCESS_DENIED, Reason.BUDGET_EXCEEDED, Reason.FANOUT_EXCEEDED}
"""Rejections of an answer that another run would not change."""


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The command, how many of them run at once and how long, and what becomes of its output.

    `render` returns the input of the command for a message. `output` goes to the own stdout, or to
    stderr so that stdout has the outcomes only.
    """

    command: list[str]
    render: Callable[[Message], str]
    parallel: int = 1
    timeout_s: float
    reply: bool = False
    output: Literal["inherited", "stderr"] = "inherited"


class RunCallbacks(msgspec.Struct, frozen=True):
    """Called while listening. `on_ready` gets the number of stored messages."""

    on_ready: Callable[[int], None]
    on_run: Callable[[CommandRun], None]


def listen_and_run(
    url: str, identity: Identity, options: ListenOptions, runs: RunOptions, callbacks: RunCallbacks
) -> int:
    """Run the command for messages as they arrive, until the limits of `options` or a signal.

    After `seconds` no more commands are started; those that run are waited for. Returns the number
    of messages.
    """
    runner = _Runner(url, identity, runs, callbacks.on_run)
    chosen = ClientOptions(
        receive="pull",  # none waits here while others could take it
        shared=options.shared,
        extend_max_s=runs.timeout_s + 2 * child_process.GRACE_S + child_process.DRAIN_S,
    )

    async def act() -> None:
        async with connected(url, identity, chosen) as agent:
            callbacks.on_ready(agent.queue_status or 0)
            await runner.run_all(agent, options)

    asyncio.run(until_signal(act()))
    return runner.count


class _Runner:
    """Runs commands for the messages of one agent; `count` of them so far."""

    def __init__(
        self, url: str, identity: Identity, runs: RunOptions, on_run: Callable[[CommandRun], None]
    ) -> None:
        self.count = 0
        self._runs = runs
        self._on_run = on_run
        self._free = asyncio.Semaphore(runs.parallel)
        inherited = {k: v for k, v in os.environ.items() if k not in _NOT_INHERITED}
        own = {"WAYPOST_URL": url, "WAYPOST_SUBJECT": identity.subject}
        self._environment = inherited | own

    async def run_all(self, agent: Agent, options: ListenOptions) -> None:
        """Start a command for each message, until the limits of `options`; wait for all."""
        try:
            async with asyncio.TaskGroup() as tasks:
                try:
                    async with asyncio.timeout(options.seconds):
                        while self.count != options.count:
                            await self._free.acquire()
                            message = await _next(agent)
                            self.count += 1
                            tasks.create_task(self._run(message))
                except TimeoutError:
                    pass
        except BaseExceptionGroup as problems:
            raise problems.exceptions[0] from None

    async def _run(self, message: Message) -> None:
        begun_s = time.monotonic()
        try:
            ended, outcome = await self._process(message)
        except asyncio.CancelledError:
            message.nack_nowait(release=True)
            self._report(message, begun_s, None, _Outcome("released"))
            raise
        finally:
            self._free.release()
        self._report(message, begun_s, ended.exit_code, outcome)

    async def _process(self, message: Message) -> "tuple[child_process.Ended, _Outcome]":
        runs = self._runs
        not_run = child_process.Ended(None)
        if message.problem:
            message.nack_nowait(UNSEALABLE_DELAY_S, release=True)
            return not_run, _Outcome("released", message.problem)
        if runs.reply and message.budget.call_budget_remaining < 1:
            return not_run, _returned(message, "no calls left for an answer")
        message.keep()
        ended = await child_process.run(
            runs.command,
            runs.render(message).encode(),
            self._environment | _attributes(message),
            timeout_s=runs.timeout_s,
            stdout="captured" if runs.reply else runs.output,
        )
        if ended.exit_code != 0:
            return ended, _returned(message, ended.problem or _failure(ended))
        outcome = await _answer(message, ended.output) if runs.reply else _Outcome("acknowledged")
        if outcome.kind == "acknowledged":
            message.ack_nowait()
        return ended, outcome

    def _report(
        self, message: Message, begun_s: float, exit_code: int | None, outcome: "_Outcome"
    ) -> None:
        self._on_run(
            CommandRun(
                id=message.id,
                sender=message.sender,
                attempt=message.attempt,
                exit_code=exit_code,
                duration_ms=round(1000 * (time.monotonic() - begun_s)),
                outcome=outcome.kind,
                error=outcome.error,
                answer=outcome.answer,
            )
        )


async def _next(agent: Agent) -> Message:
    """Return the next message, whenever it arrives."""
    while True:
        try:
            for message in await agent.fetch(1, wait=FETCH_WAIT_S):
                return message
        except TimeoutError:
            continue  # the relay is unreachable; the agent reconnects in the background
        except OperationRejected as problem:
            await asyncio.sleep(max(1.0, _wait_s(problem.retry_after_ms)))


class _Outcome(msgspec.Struct, frozen=True):
    kind: Literal["acknowledged", "returned", "released"]
    error: str = ""
    answer: str | None = None


def _returned(message: Message, error: str, delay_s: float = 0.0) -> _Outcome:
    message.nack_nowait(delay_s, error)
    return _Outcome("returned", error_text(error))


def _failure(ended: child_process.Ended) -> str:
    code = ended.exit_code or 0
    how = f"exit {code}" if code >= 0 else f"ended by signal {-code}"
    return f"{how}: {ended.last_words}" if ended.last_words else how


async def _answer(message: Message, output: bytes) -> _Outcome:
    """Send the output of a command, if any, as the answer to its message."""
    if not output.strip():
        return _Outcome("acknowledged")
    if is_reserved(message.reply_to or message.sender):
        return _Outcome("acknowledged", f"{message.sender} accepts no answers")
    try:
        result = await message.reply(_payload(output), message_id=_answer_id(message))
    except UnicodeDecodeError:
        return _returned(message, "the output is not UTF-8 text")
    except WaypostError as problem:
        return _returned(message, f"no answer sent: {problem}")
    if result.delivered_to:
        return _Outcome("acknowledged", answer=result.message_id)
    return _not_answered(message, result)


def _not_answered(message: Message, result: PublishResult) -> _Outcome:
    reasons = {one.reason for one in result.rejected}
    text = ", ".join(sorted(reasons)) or f"no endpoint {message.reply_address}"
    if reasons and not reasons & _FINAL:
        error = f"answer rejected: {text}"
        return _returned(message, error, _wait_s(result.retry_after_ms))
    return _Outcome("acknowledged", f"answer rejected: {text}")


def _wait_s(retry_after_ms: int) -> float:
    """Return how long to wait, whatever a relay asks for."""
    return min(max(0.0, retry_after_ms / 1000), WAIT_MAX_S)


def _payload(output: bytes) -> object:
    """Return output as a payload: JSON unchanged, other text without its last line break."""
    text = output.decode()
    try:
        msgspec.json.decode(output)
    except (msgspec.DecodeError, RecursionError):
        return text.removesuffix("\n").removesuffix("\r")
    return msgspec.Raw(output)


def _answer_id(message: Message) -> str:
    digest = hashlib.sha256(f"{message.sender} {message.id}".encode()).hexdigest()
    return f"answer-{digest[:32]}"


def _attributes(message: Message) -> dict[str, str]:
    """Return what the environment tells a command; a hostile relay may send any text."""
    budget = message.budget
    values = {
        "ID": message.id,
        "SENDER": message.sender,
        "SENT_TO": message.subject,
        "REPLY_TO": message.reply_to,
        "PARENT": message.parent,
        "THREAD": message.thread,
        "ATTEMPT": message.attempt,
        "CREATED_AT": message.created_at.isoformat(),
        "CALLS_LEFT": budget.call_budget_remaining,
        "HOPS_LEFT": max(0, budget.max_hops - budget.hop_count),
        "EXPIRES_AT_MS": budget.ttl,
    }
    return {
        f"WAYPOST_{name}": printable(str(value))
        for name, value in values.items()
        if value is not None
    }
