"""Watches files that people and other processes change: settings, access rules, drop-ins.

Settings and rules are two files, which may be links into other directories, over links in turn. So
they are looked at every half a second, through all links. Drop-ins are many, in one directory that
the system watches.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from watchfiles import Change, awatch

from waypost.relay.data_dir import DataDir

log = logging.getLogger("waypost.relay")

_LOOK_S = 0.5
_STEP_MS = 50
_DEBOUNCE_MS = 200
_RETRY_MS = 5000

Version = tuple[int, ...]
"""Changes whenever a file is written or another takes its name; empty without a file."""


class DropInScanner(Protocol):
    """Takes in files that another process put into a mailbox."""

    def scan(self, hash_: str) -> object:
        """Check every file in the mailbox `hash_`."""

    def check(self, hash_: str, name: str) -> object:
        """Check the file `name` in the mailbox `hash_`."""


class FileWatcher:
    """Calls `on_file[path]` when that file changes, and `drop_ins` when a file is dropped in.

    Without `drop_ins`, mailboxes are not watched.
    """

    def __init__(
        self,
        data: DataDir,
        on_file: Mapping[Path, Callable[[], object]],
        drop_ins: DropInScanner | None,
    ) -> None:
        self._data = data
        self._on_file = on_file
        self._seen = {path: file_version(path) for path in on_file}
        self._drop_ins = drop_ins
        self._stop = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start watching."""
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._watch_files()))
        if self._drop_ins is not None:
            self._tasks.append(loop.create_task(self._watch_mailboxes(self._drop_ins)))
        await asyncio.sleep(0)  # the tasks set up their watches in their first step

    async def stop(self) -> None:
        """Stop watching."""
        self._stop.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _watch_files(self) -> None:
        due = set(self._on_file)  # they may have changed since the relay read them
        while not self._stop.is_set():
            due = self._reload_changed(due)
            try:
                await asyncio.wait_for(self._stop.wait(), _LOOK_S)
            except TimeoutError:
                pass

    def _reload_changed(self, due: set[Path]) -> set[Path]:
        """Reload files that changed, and those that are `due`; return those to be read next time.

        A changed file is read once more: a second change may have left no trace in its version,
        whose clock ticks every few milliseconds.
        """
        later: set[Path] = set()
        for path, reload in self._on_file.items():
            version = file_version(path)
            changed = version != self._seen[path]
            if (changed or path in due) and (not _attempt(reload) or changed):
                later.add(path)
            self._seen[path] = version
        return later

    async def _watch_mailboxes(self, drop_ins: DropInScanner) -> None:
        due: set[str] = set()
        async for changes in awatch(
            self._data.incoming,
            watch_filter=_matters,
            step=_STEP_MS,
            debounce=_DEBOUNCE_MS,
            rust_timeout=_RETRY_MS,
            yield_on_timeout=True,
            stop_event=self._stop,
        ):
            due = {hash_ for hash_ in due if not _attempt(drop_ins.scan, hash_)}
            for change, path in sorted(changes, key=lambda item: item[1]):
                before, last = path.rsplit("/", 1)
                if change is Change.deleted:
                    hash_ = before.rsplit("/", 1)[1]
                    if not _attempt(drop_ins.check, hash_, last):
                        due.add(hash_)
                elif before == str(self._data.incoming) and not _attempt(drop_ins.scan, last):
                    due.add(last)


def _attempt(act: Callable[..., object], *arguments: str) -> bool:
    """Call `act`; return False if a file could not be opened, so that it must be called again."""
    try:
        act(*arguments)
    except OSError as problem:
        log.warning("a changed file is read again later: %s", problem)
        return False
    return True


def file_version(path: Path) -> Version:
    """Return the version of a file, through all links."""
    try:
        found = os.stat(path)
    except OSError:
        return ()
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def _matters(change: Change, path: str) -> bool:
    """Return whether a file left a `tmp/`, probably for `new/`, or a new `tmp/` appeared."""
    return change is not Change.modified
