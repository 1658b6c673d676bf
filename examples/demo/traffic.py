"""Endless traffic for the dashboard: the scenes in random order, again and again."""

import asyncio
import random

from examples.demo.demo_relay import DemoRelay
from examples.demo.failing import fail_and_recover, kill_and_reconnect
from examples.demo.misbehaving import fill_mailbox, flood, loop, send_despite_rule
from examples.demo.output import console
from examples.demo.well_behaved import ChattyPair, broadcast, write_to_offline_agent
from waypost.client import ClientError

SCENES = (
    broadcast,
    write_to_offline_agent,
    loop,
    flood,
    fill_mailbox,
    send_despite_rule,
    fail_and_recover,
    kill_and_reconnect,
)
PAUSE_S = 2.0


async def run_endlessly(demo: DemoRelay) -> None:
    """Run scenes until cancelled."""
    talking = asyncio.create_task(ChattyPair(demo, pause_s=0.8).talk())
    console.quiet = True  # the dashboard shows it
    try:
        while True:
            for scene in random.sample(SCENES, len(SCENES)):
                try:
                    await scene(demo)
                except* (ClientError, TimeoutError):
                    pass  # an agent was too slow this time; the relay has lost nothing
                await asyncio.sleep(PAUSE_S)
    finally:
        console.quiet = False
        talking.cancel()
