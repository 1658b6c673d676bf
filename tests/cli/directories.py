"""Data directories written by a relay."""

import asyncio
from pathlib import Path
from typing import Any

from waypost import Relay, Settings

LARGE = "x" * 9000
"""A payload that is stored in the body file, not in the segment."""


def fill(data: Path, **fields: Any) -> None:
    """Create two endpoints, five small messages and a large one for `agent.a`; lease two.

    The first segment is sealed. The second holds the leases, and two messages for `agent.c`.
    """

    async def act(relay: Relay) -> None:
        for subject in ("agent.a", "agent.c"):
            relay.register_endpoint(subject)
        for number in range(5):
            await relay.publish(
                "agent.a", {"number": number}, sender="agent.b", message_id=f"small-{number}"
            )
        await relay.publish("agent.a", LARGE, sender="agent.b", message_id="large")
        await relay.seal_journal()
        for number in range(2):
            await relay.publish("agent.c", number, sender="agent.a", message_id=f"late-{number}")
        await relay.lease("agent.a", 2)

    in_relay(data, act, **fields)


def add_dead_letters(
    data: Path, *ids: str, reason: str = "no luck today", to: str = "agent.a"
) -> None:
    """Add dead letters: messages whose handler raised."""

    async def act(relay: Relay) -> None:
        relay.register_endpoint(to)

        def handler(_: object) -> None:
            raise ValueError(reason)

        relay.subscribe(to, handler)
        for message_id in ids:
            await relay.publish(to, {"id": message_id}, sender="agent.b", message_id=message_id)
        await relay.idle()

    in_relay(data, act)


def in_relay(data: Path, act: Any, **fields: Any) -> None:
    """Open a relay on `data`, call `act` with it, and close it."""

    async def run() -> None:
        async with Relay(data, settings=Settings(**fields)) as relay:
            await act(relay)

    asyncio.run(run())


def segments(data: Path) -> list[Path]:
    """Return the segments of the journal, oldest first."""
    return sorted(p for p in (data / "journal").iterdir() if p.suffix in (".jsonl", ".open"))


def body_file(data: Path) -> Path:
    """Return the only body file."""
    [found] = (data / "journal").glob("*.bodies")
    return found


def mailbox_file(data: Path, name: str) -> Path:
    """Return the only file of a message, in any folder."""
    [found] = (data / "mailboxes").glob(f"*/*/{name}")
    return found


def change_byte(path: Path, offset: int) -> None:
    """Flip some bits of one byte."""
    content = bytearray(path.read_bytes())
    content[offset] ^= 0b101
    path.write_bytes(content)


def tree(directory: Path) -> dict[str, bytes]:
    """Return every file below `directory` with its content."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
