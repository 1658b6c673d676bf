"""Carries messages between partitions: requests over NATS, answered by the node that owns one.

Rule 1  A request is answered once its decisions are durable, or with why there are none.
Rule 2  A request without an answer is unknown, and made again: the other side decides once.
Rule 3  The servers admit only nodes of the cluster to these subjects, so what arrives here was
        decided by a node. It is decoded and bounded nevertheless.
"""

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec
import nats.errors
from nats.aio.client import Client
from nats.aio.msg import Msg

from waypost.policy.bounds import forward_batch_max_messages
from waypost.relay.errors import PartitionUnavailable, RelayError
from waypost.relay.relay import Relay
from waypost.wire.events import Forwarded
from waypost.wire.outcomes import ForwardOutcome

log = logging.getLogger("waypost.cluster")

ANSWER_S = 3.0
"""A request that a node took with it when it ended is made again after this."""


class ForwardRequest(msgspec.Struct, frozen=True):
    """Messages that `origin` forwards."""

    origin: int
    messages: list[Forwarded]


class ForwardAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """The decisions, in the order of the messages, or why there are none."""

    outcomes: list[ForwardOutcome] = []
    problem: str = ""


class NatsCarrier:
    """The `Carrier` of all partitions of one node."""

    def __init__(self, client: Client, cluster: str) -> None:
        self._client = client
        self._subject = f"waypost.{cluster}"

    async def carry(
        self, origin: int, partition: int, messages: Sequence[Forwarded]
    ) -> Sequence[ForwardOutcome]:
        """Return the decisions of another partition. Raises `PartitionUnavailable`.

        A message that the servers do not carry is rejected: it would hold up those behind it.
        """
        request = msgspec.json.encode(ForwardRequest(origin, list(messages)))
        if len(request) > self._client.max_payload:
            if len(messages) == 1:
                return [ForwardOutcome(error=self._too_large(len(request)))]
            half = len(messages) // 2
            first = await self.carry(origin, partition, messages[:half])
            return [*first, *await self.carry(origin, partition, messages[half:])]
        try:
            reply = await self._client.request(self._decide(partition), request, timeout=ANSWER_S)
            answer = msgspec.json.decode(reply.data, type=ForwardAnswer)
        except nats.errors.NoRespondersError:
            raise PartitionUnavailable(partition, "no node owns it at the moment") from None
        except (nats.errors.Error, OSError, TimeoutError, msgspec.DecodeError) as problem:
            raise PartitionUnavailable(partition, str(problem) or "no answer") from None
        if answer.problem:
            raise PartitionUnavailable(partition, answer.problem)
        if len(answer.outcomes) != len(messages):
            raise PartitionUnavailable(partition, "it answered to other messages")
        return answer.outcomes

    def _too_large(self, size: int) -> str:
        return (
            f"the message has {size:,} bytes with its header, and the NATS servers of this cluster"
            f" carry {self._client.max_payload:,} to another partition: raise their max_payload"
        )

    @asynccontextmanager
    async def serving(self, partition: int, relay: Relay) -> AsyncIterator[None]:
        """ForwardAnswer the requests to a partition that `relay` has, until the block ends."""

        async def answer(message: Msg) -> None:
            await message.respond(msgspec.json.encode(await _decide(relay, message.data)))

        subscription = await self._client.subscribe(self._decide(partition), cb=answer)
        try:
            yield
        finally:
            try:
                await subscription.unsubscribe()
            except (nats.errors.Error, OSError):
                pass  # the connection is gone, and the subscription with it

    def _decide(self, partition: int) -> str:
        return f"{self._subject}.{partition}.decide"


async def _decide(relay: Relay, data: bytes) -> ForwardAnswer:
    try:
        request = msgspec.json.decode(data, type=ForwardRequest)
        if len(request.messages) > forward_batch_max_messages:
            return ForwardAnswer(problem=f"more than {forward_batch_max_messages} messages at once")
        outcomes = await relay.decide_forwarded(request.origin, request.messages)
    except (RelayError, msgspec.DecodeError) as problem:
        return ForwardAnswer(problem=str(problem))
    except Exception as problem:
        log.exception("cluster: forwarded messages could not be decided")
        return ForwardAnswer(problem=f"internal error: {type(problem).__name__}")
    return ForwardAnswer(list(outcomes))
