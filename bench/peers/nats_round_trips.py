"""NATS JetStream as a producer and a consumer: publish, fetch, acknowledge.

The stream confirms the producer's `publish_async`; at the same time the consumer, on a connection
of its own, fetches messages and acknowledges them, the last of each fetch with `ack_sync`. NATS
does not notify a producer of acknowledgements, so the run ends with the consumer's last
acknowledgement: one message fewer on the network than with Waypost.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import islice
from pathlib import Path

from bench.peers import batch_sizes, require
from bench.peers.nats_jetstream import (
    ACK_PENDING_MAX,
    CONSUMER,
    RUN_SECONDS_MAX,
    STREAM,
    SUBJECT,
    NatsJetStream,
)
from bench.round_trips import stopwatch


class NatsRoundTrips(NatsJetStream):
    """`publish_async` by one connection, `fetch` and `ack` by another."""

    async def start(self, data_dir: Path) -> None:
        """Start the server, and connect the consumer on its own."""
        import nats

        await super().start(data_dir)
        try:
            self._consumer_client = await nats.connect(self.address, allow_reconnect=False)
            jetstream = self._consumer_client.jetstream()
            self._fetching = await jetstream.pull_subscribe_bind(CONSUMER, STREAM)
        except BaseException:
            await self.stop()
            raise

    async def round_trips(self, count: int, in_flight: int) -> float:
        """Publish and consume; each message must be confirmed and acknowledged."""
        async with asyncio.timeout(RUN_SECONDS_MAX):
            with stopwatch() as seconds:
                for size in batch_sizes(count, in_flight):
                    payloads = list(islice(self._payloads, size))
                    confirmed, received = await asyncio.gather(
                        self._publish_each(payloads), self._receive(size)
                    )
                    require(confirmed == received == size, "nats did not confirm every message")
        return seconds[0]

    async def send(self, count: int) -> None:
        """Publish `count` messages; each is confirmed when this returns."""
        confirmed = await self._publish_each(list(islice(self._payloads, count)))
        require(confirmed == count, f"nats confirmed {confirmed} of {count} messages")

    @asynccontextmanager
    async def reading(self, on_arrival: Callable[[int], None]) -> AsyncIterator[None]:
        """Subscribe to new messages, and acknowledge each.

        The server pushes them: `fetch` would wait until a whole batch is there. They stay pending
        for the consumer of `round_trips`, so measure those before.
        """
        from nats.aio.msg import Msg
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        async def receive(message: Msg) -> None:
            on_arrival(1)
            await message.ack()

        subscription = await self._consumer_client.jetstream().subscribe(
            SUBJECT,
            stream=STREAM,
            cb=receive,
            manual_ack=True,
            config=ConsumerConfig(
                deliver_policy=DeliverPolicy.NEW,
                ack_policy=AckPolicy.EXPLICIT,
                max_ack_pending=ACK_PENDING_MAX,
            ),
        )
        try:
            yield
        finally:
            await subscription.unsubscribe()

    async def stop(self) -> None:
        """Close both connections."""
        client, self._consumer_client = getattr(self, "_consumer_client", None), None
        if client is not None:
            await client.close()
        await super().stop()

    async def _receive(self, count: int) -> int:
        received = 0
        while received < count:
            messages = await self._fetching.fetch(count - received, timeout=None)
            for message in messages[:-1]:
                await message.ack()
            await messages[-1].ack_sync(timeout=RUN_SECONDS_MAX)
            received += len(messages)
        return received
