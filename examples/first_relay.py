"""The smallest useful program: two agents, one message, one reply."""

import asyncio
import sys
import tempfile

from waypost import Envelope, Relay


async def main(data_dir: str) -> None:
    """Ask an agent something and print its answer."""
    async with Relay(data_dir) as relay:

        async def answer(question: Envelope) -> None:
            total = sum(question.payload["numbers"])
            assert question.reply_to is not None
            await relay.publish(
                question.reply_to, {"total": total}, sender="agent.sum", parent=question
            )

        relay.register_endpoint("agent.sum")
        relay.subscribe("agent.sum", answer)
        reply = await relay.request("agent.sum", {"numbers": [1, 2, 3]}, sender="agent.me")
        print(reply.sender, "says", reply.payload)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp()))
