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


class FileWatcher:
    """Calls back when a watched file changes. With `mailboxes` False, only the two files."""

    def __init__(self, data: DataDir, *, mailboxes: bool) -> None:
        self._data = data
        self._mailboxes = mailboxes
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.on_file: dict[Path, Callable[[], object]] = {}
        self.on_mailbox: Callable[[str], object] = lambda hash_: None
        self.on_mail: Callable[[str, str], object] = lambda hash_, name: None

    async def start(self) -> None:
        """Begin to watch."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._watch_files()))
        if self._mailboxes:
            self._tasks.append(loop.create_task(self._watch_mailboxes()))
        await asyncio.sleep(0)  # in their first step the tasks set up their watches

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
            self._data.incoming,
            watch_filter=_matters,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            stop_event=self._stop,
        ):
            for change, path in sorted(changes, key=lambda item: item[1]):
                before, last = path.rsplit("/", 1)
                if change is Change.deleted:
                    self.on_mail(before.rsplit("/", 1)[1], last)
                elif before == str(self._data.incoming):
                    self.on_mailbox(last)


def _matters(change: Change, path: str) -> bool:
    """A file left a `tmp/`, most likely for `new/`; or a `tmp/` is new, and watched from now."""
    return change is not Change.modified
