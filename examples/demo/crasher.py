"""A process of its own, to be killed: takes messages, confirms the first, and does no more.

    python -m examples.demo.crasher URL KEY_FILE MESSAGES

It prints a line once it holds them all.
"""

import asyncio
import sys

from waypost.client import Identity, connect


async def main(url: str, key_file: str, messages: int) -> None:
    """Take so many messages, and wait for the end."""
    async with connect(url, Identity.load(key_file)) as agent:
        held = [await agent.receive(30) for _ in range(messages)]
        await held[0].ack()
        print("in hand", flush=True)
        await asyncio.sleep(60)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
