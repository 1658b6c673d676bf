"""Waiting for what another task will do soon."""

import asyncio
from collections.abc import Callable


async def eventually(condition: Callable[[], object], timeout_s: float = 5.0) -> None:
    """Return once `condition` holds; fail if it does not in time."""
    async with asyncio.timeout(timeout_s):
        while not condition():  # noqa: ASYNC110 - it may be anybody's doing
            await asyncio.sleep(0.005)
