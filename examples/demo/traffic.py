"""Traffic without end, for whoever watches the dashboard: the same scenes, over and over."""

import asyncio
import random

from examples.demo.broken import die_and_come_back, fail_and_recover
from examples.demo.orderly import ChattyPair, broadcast, catch_up
from examples.demo.stage import Stage
from examples.demo.telling import console
from examples.demo.unruly import break_rules, fill_up, flood, run_in_circles
from waypost.client import ClientError

SCENES = (
    *(broadcast, catch_up, run_in_circles, flood, fill_up, break_rules),
    *(fail_and_recover, die_and_come_back),
)
PAUSE_S = 2.0


async def go_on(stage: Stage) -> None:
    """Until cancelled."""
    talking = asyncio.create_task(ChattyPair(stage, pause_s=0.8).talk())
    console.quiet = True  # the dashboard tells it
    try:
        while True:
            for play in random.sample(SCENES, len(SCENES)):
                try:
                    await play(stage)
                except* (ClientError, TimeoutError):
                    pass  # somebody was too slow this time; the relay has lost nothing for it
                await asyncio.sleep(PAUSE_S)
    finally:
        console.quiet = False
        talking.cancel()
