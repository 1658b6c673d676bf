"""News to many viewers: each frame is made once, and nobody waits for the slowest.

Rule 1  A viewer begins with everything there is to know, then gets what changes.
Rule 2  A viewer that is `FRAMES_MAX` frames behind misses them, and begins again.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Iterable

FRAMES_MAX = 16


class _Viewer:
    def __init__(self) -> None:
        self.waiting: deque[bytes] = deque()
        self.behind = True  # it has seen nothing yet
        self.woken = asyncio.Event()


class Channel:
    """One kind of news. `beginning` gives the frames that tell everything so far."""

    def __init__(self, beginning: Callable[[], Iterable[bytes]]) -> None:
        self._beginning = beginning
        self._viewers: set[_Viewer] = set()
        self._closed = False

    def __len__(self) -> int:
        return len(self._viewers)

    def send(self, frame: bytes) -> None:
        """Tell every viewer."""
        for viewer in self._viewers:
            if viewer.behind:
                continue  # what it will be told from the beginning has this in it
            viewer.waiting.append(frame)
            if len(viewer.waiting) > FRAMES_MAX:
                viewer.waiting.clear()
                viewer.behind = True
            viewer.woken.set()

    def close(self) -> None:
        """Let all viewers go."""
        self._closed = True
        for viewer in self._viewers:
            viewer.woken.set()

    def now(self) -> bytes:
        """Everything so far, without waiting for more."""
        return b"".join(self._beginning())

    async def follow(self) -> AsyncGenerator[bytes, None]:
        """Everything so far, and then what happens, until the channel is closed."""
        viewer = _Viewer()
        self._viewers.add(viewer)
        try:
            while not self._closed:
                if viewer.behind:
                    viewer.behind = False
                    yield self.now()
                elif viewer.waiting:
                    yield viewer.waiting.popleft()
                else:
                    viewer.woken.clear()
                    await viewer.woken.wait()
        finally:
            self._viewers.discard(viewer)
