"""A process to be killed: receive messages, acknowledge the first, then wait.

    python -m examples.demo.crasher URL KEY_FILE MESSAGES

It prints a line once it has received all of them.
"""

import asyncio
import sys

from waypost.client import ClientOptions, Identity, connect

PATIENCE_S = 60.0
OPTIONS = ClientOptions(connect_timeout_s=PATIENCE_S, handshake_timeout_s=PATIENCE_S)


async def main(url: str, key_file: str, messages: int) -> None:
    """Receive `messages` messages, and wait to be killed."""
    async with connect(url, Identity.load(key_file), options=OPTIONS) as agent:
        received = [await agent.receive(PATIENCE_S) for _ in range(messages)]
        await received[0].ack()
        print("received", flush=True)
        await asyncio.sleep(2 * PATIENCE_S)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
