"""Wait for a condition that another task, thread or process brings about.

Only this module sleeps. A test that needs time to pass moves a `ManualClock`; a test that needs
something to happen waits for it here, with a deadline and the name of what it waits for.
"""

import asyncio
import inspect
import time
from collections.abc import Callable

TIMEOUT_S = 60.0
_POLL_S = 0.005


async def eventually(
    condition: Callable[[], object],
    expected: str = "the condition",
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Return once `condition` holds; fail with `expected` after `timeout_s`.

    `condition` may be a coroutine function.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        holds = condition()
        if await holds if inspect.isawaitable(holds) else holds:
            return
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for {expected}"
        await asyncio.sleep(_POLL_S)


def eventually_blocking(
    condition: Callable[[], object],
    expected: str = "the condition",
    *,
    timeout_s: float = TIMEOUT_S,
) -> None:
    """Do the same outside an event loop."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"waited {timeout_s} s in vain for {expected}"
        time.sleep(_POLL_S)


async def unchanged(value: Callable[[], object], *, for_s: float) -> None:
    """Return once `value` has stayed the same for `for_s`."""
    last, since = value(), time.monotonic()

    def is_steady() -> bool:
        nonlocal last, since
        if value() != last:
            last, since = value(), time.monotonic()
        return time.monotonic() - since >= for_s

    await eventually(is_steady, "a steady value")


async def event_loop_turns(count: int = 20) -> None:
    """Run everything that is ready, and what that makes ready, `count` times."""
    for _ in range(count):
        await asyncio.sleep(0)
