"""Counts the turns that other tasks get while one works: none means that it held the event loop."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def counting_turns(work: Awaitable[T]) -> tuple[T, int]:
    """Await `work`; return its result, and how many turns another task got meanwhile."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    counter = asyncio.create_task(count())
    try:
        return await work, turns
    finally:
        counter.cancel()
