"""NATS JetStream as a producer and a consumer: publish, fetch, acknowledge.

The stream confirms the producer's `publish_async`; at the same time the consumer, on a connection
of its own, fetches messages and acknowledges them, the last of each fetch with `ack_sync`. NATS
does not notify a producer of acknowledgements, so the run ends with the consumer's last
acknowledgement: one message fewer on the network than with Waypost.
"""

import asyncio
from itertools import islice
from pathlib import Path

from bench.peers import batch_sizes, require
from bench.peers.nats_jetstream import CONSUMER, RUN_SECONDS_MAX, STREAM, NatsJetStream
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
