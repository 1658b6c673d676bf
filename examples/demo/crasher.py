"""A process to be killed: receive messages, acknowledge the first, then wait.

    python -m examples.demo.crasher URL KEY_FILE MESSAGES

It prints a line once it has received all of them.
"""

import asyncio
import sys

from waypost.client import Identity, connect


async def main(url: str, key_file: str, messages: int) -> None:
    """Receive `messages` messages, and wait to be killed."""
    async with connect(url, Identity.load(key_file)) as agent:
        received = [await agent.receive(30) for _ in range(messages)]
        await received[0].ack()
        print("received", flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
