"""The health of the process and its machine: version, uptime, disk, last sync, open files."""

import os
import resource
import shutil
import time

from waypost.relay.relay import Relay
from waypost.version import installed_version
from waypost.wire.stats_bodies import NodeHealth

OPEN_FILES = "/dev/fd"
"""Lists the open files of a process, on Linux and macOS."""

CHECK_EVERY_S = 1.0
"""Listing the open files takes longer the more agents are connected."""


class NodeCheck:
    """Checks the process that opened `relay`, at most once in `CHECK_EVERY_S`."""

    def __init__(self, relay: Relay) -> None:
        self._relay = relay
        self._started_us = relay.now_us()
        self._found: NodeHealth | None = None
        self._due_s = 0.0

    def health(self) -> NodeHealth:
        """Return the health of this process, not older than `CHECK_EVERY_S`."""
        now_s = time.monotonic()
        if self._found is None or now_s >= self._due_s:
            self._found, self._due_s = self._check(), now_s + CHECK_EVERY_S
        return self._found

    def _check(self) -> NodeHealth:
        inspector = self._relay.inspect()
        disk = shutil.disk_usage(inspector.data_dir)
        open_files_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        try:
            open_files = len(os.listdir(OPEN_FILES))
        except OSError:  # no descriptor is free to count the others
            open_files = open_files_max
        return NodeHealth(
            version=installed_version(),
            started_us=self._started_us,
            synced_us=inspector.journal().committed_us,
            disk_free_bytes=disk.free,
            disk_total_bytes=disk.total,
            open_files=open_files,
            open_files_max=open_files_max,
        )
