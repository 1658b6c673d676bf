"""Server-sent events: encoding, and broadcast to many viewers.

Rule 1  A viewer first gets a full snapshot, then the changes.
Rule 2  A viewer that is `FRAMES_MAX` frames behind misses them and gets a new snapshot.
Rule 3  Each frame is encoded once, and no viewer waits for a slower one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable

import msgspec

MEDIA_TYPE = "text/event-stream; charset=utf-8"
FRAMES_MAX = 16

_encode = msgspec.json.Encoder().encode


def encode_frame(event: str, content: object) -> bytes:
    """Encode one event, with its content as JSON, which has no line feed in it."""
    return b"event: %b\ndata: %b\n\n" % (event.encode(), _encode(content))


class _Viewer:
    def __init__(self) -> None:
        self.frames: deque[bytes] = deque()
        self.needs_snapshot = True
        self.woken = asyncio.Event()


class Channel:
    """Broadcast frames to viewers; `snapshot` returns the frames that a new viewer gets first."""

    def __init__(self, snapshot: Callable[[], Iterable[bytes]]) -> None:
        self._snapshot = snapshot
        self._viewers: set[_Viewer] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._viewers)

    def broadcast(self, frame: bytes) -> None:
        """Send a frame to every viewer."""
        for viewer in self._viewers:
            if viewer.needs_snapshot:
                continue  # its next snapshot includes this
            viewer.frames.append(frame)
            if len(viewer.frames) > FRAMES_MAX:
                viewer.frames.clear()
                viewer.needs_snapshot = True
            viewer.woken.set()

    def close(self) -> None:
        """Disconnect all viewers."""
        self._closed = True
        for viewer in self._viewers:
            viewer.woken.set()

    def snapshot(self) -> bytes:
        """Return the current snapshot."""
        return b"".join(self._snapshot())

    async def follow(self) -> AsyncGenerator[bytes, None]:
        """Yield a snapshot, then every frame, until the channel is closed."""
        viewer = _Viewer()
        self._viewers.add(viewer)
        try:
            while not self._closed:
                if viewer.needs_snapshot:
                    viewer.needs_snapshot = False
                    yield self.snapshot()
                elif viewer.frames:
                    yield viewer.frames.popleft()
                else:
                    viewer.woken.clear()
                    await viewer.woken.wait()
        finally:
            self._viewers.discard(viewer)
