"""Settings and access rules that all partitions share, as the files that each relay watches.

Rule 1  A change of the shared value is written into the file of every partition owned here; the
        relay takes it over as it takes over any change of its files.
Rule 2  A change of a file, by the relay's own interface or by hand, becomes the shared value. If
        two happen at the same time, the later one is in force everywhere.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from waypost.cluster.shared_values import VALUE_MAX_BYTES, SharedValues
from waypost.files import read_file
from waypost.relay.config.file_watcher import Version, file_version
from waypost.relay.data_dir import DataDir, replace_file

log = logging.getLogger("waypost.cluster")

CONFIG_KEY, RULES_KEY = "config", "rules"
CHECK_S = 1.0


class SharedFiles:
    """The shared files of one node."""

    def __init__(self, values: SharedValues) -> None:
        self._values = values
        self._known: dict[Path, bytes] = {}
        """What a file of a partition owned here and the shared value both were at last."""
        for key in (CONFIG_KEY, RULES_KEY):
            values.on_change(key, self._on_change)

    def copy_to(self, data: DataDir) -> None:
        """Give a partition that is not open yet the files of the cluster."""
        for key, path in _files(data):
            shared = self._values.get(key)
            _write(path, b"" if shared is None else shared.value)

    @asynccontextmanager
    async def shared_from(self, data: DataDir) -> AsyncIterator[None]:
        """Keep the files of an open partition and the shared values in step."""
        for key, path in _files(data):
            self._known[path] = _read(path)
            shared = self._values.get(key)  # it may have changed since `copy_to`
            self._on_change(key, None if shared is None else shared.value)
        checking = asyncio.create_task(self._check(data))
        try:
            yield
        finally:
            checking.cancel()
            for _, path in _files(data):
                self._known.pop(path, None)

    def _on_change(self, key: str, value: bytes | None) -> None:
        content = value or b""
        for path, known in list(self._known.items()):
            if path.name == _file_name(key) and known != content:
                self._known[path] = content
                try:
                    _write(path, content)
                except OSError as problem:
                    log.error("cluster: %s is not up to date: %s", path, problem)

    async def _check(self, data: DataDir) -> None:
        """Publish changes of the files, until cancelled.

        A file is read when it may have changed, and once more after that: a second change within
        the same tick of the clock leaves no trace.
        """
        seen: dict[Path, Version] = {}
        while True:
            await asyncio.sleep(CHECK_S)
            for key, path in _files(data):
                version = file_version(path)
                if seen.get(path) == version:
                    continue
                try:
                    content = _read(path)
                    if content == self._known[path]:
                        seen[path] = version
                    else:
                        await self._values.put(key, content)
                        self._known[path] = content
                except Exception as problem:
                    log.warning("cluster: %s is not shared with other nodes: %s", path, problem)


def _files(data: DataDir) -> Iterator[tuple[str, Path]]:
    yield CONFIG_KEY, data.config
    yield RULES_KEY, data.rules


def _file_name(key: str) -> str:
    return {CONFIG_KEY: "config.json", RULES_KEY: "access-rules.json"}[key]


def _read(path: Path) -> bytes:
    """Return the content of a file; nothing if there is none."""
    try:
        return read_file(path, VALUE_MAX_BYTES)
    except FileNotFoundError:
        return b""


def _write(path: Path, content: bytes) -> None:
    """Replace a file; remove it if there is to be none."""
    if content:
        replace_file(path, content)
    else:
        with suppress(FileNotFoundError):
            path.unlink()
