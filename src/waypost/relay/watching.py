"""Watches files that people and other processes change: settings, rules, drop-ins."""

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from watchfiles import Change, awatch

from waypost.relay.data_dir import DataDir

log = logging.getLogger("waypost.relay")

_STEP_MS = 50
_DEBOUNCE_MS = 200


class Watching:
    """Calls back when a watched file changes. With `mailboxes` False, only the two files."""

    def __init__(self, data: DataDir, *, mailboxes: bool) -> None:
        self._data = data
        self._mailboxes = mailboxes
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.on_file: dict[Path, Callable[[], object]] = {}
        self.on_mailbox: Callable[[str], object] = lambda hash_: None

    async def start(self) -> None:
        """Begin to watch."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._watch_files()))
        if self._mailboxes:
            self._tasks.append(loop.create_task(self._watch_mailboxes()))

    async def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_files(self) -> None:
        names = {str(path): act for path, act in self.on_file.items()}
        async for changes in awatch(
            self._data.root,
            watch_filter=lambda change, path: path in names,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            recursive=False,
            stop_event=self._stop,
        ):
            for path in {path for _, path in changes}:
                names[path]()

    async def _watch_mailboxes(self) -> None:
        async for changes in awatch(
            self._data.mailboxes,
            watch_filter=_is_new_mail,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            stop_event=self._stop,
        ):
            for hash_ in {path.split("/")[-3] for _, path in changes}:
                self.on_mailbox(hash_)


def _is_new_mail(change: Change, path: str) -> bool:
    return change is Change.added and path.split("/")[-2] == "new"
