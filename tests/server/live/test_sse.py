"""Broadcast to viewers, some of them slow."""

import asyncio
from collections.abc import AsyncGenerator

from waypost.server.live.sse import FRAMES_MAX, Channel


async def following(channel: Channel) -> AsyncGenerator[bytes, None]:
    """Return a viewer that has read its snapshot."""
    viewer = channel.follow()
    assert await anext(viewer) == b"everything"
    return viewer


def make() -> Channel:
    return Channel(lambda: [b"every", b"thing"])


async def test_a_viewer_gets_a_snapshot_and_then_every_frame() -> None:
    channel = make()
    viewer = await following(channel)
    channel.broadcast(b"one")
    channel.broadcast(b"two")
    assert [await anext(viewer), await anext(viewer)] == [b"one", b"two"]


async def test_a_slow_viewer_misses_frames_and_gets_a_new_snapshot() -> None:
    channel = make()
    viewer = await following(channel)
    for number in range(FRAMES_MAX + 1):
        channel.broadcast(str(number).encode())
    assert await anext(viewer) == b"everything"
    channel.broadcast(b"news")
    assert await anext(viewer) == b"news"


async def test_a_slow_viewer_does_not_delay_another() -> None:
    channel = make()
    await following(channel)
    quick = await following(channel)
    for number in range(3 * FRAMES_MAX):
        channel.broadcast(str(number).encode())
        assert await anext(quick) == str(number).encode()


async def test_closing_the_channel_disconnects_viewers() -> None:
    channel = make()
    viewer = await following(channel)
    waiting = asyncio.ensure_future(anext(viewer, None))
    await asyncio.sleep(0)
    channel.close()
    assert await waiting is None
    assert len(channel) == 0


async def test_a_viewer_that_left_is_not_counted() -> None:
    channel = make()
    viewer = channel.follow()
    await anext(viewer)
    assert len(channel) == 1
    await viewer.aclose()
    assert len(channel) == 0
