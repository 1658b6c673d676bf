"""The health of the process and its machine: version, uptime, disk, last sync, open files."""

import os
import resource
import shutil
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from waypost.relay.relay import Relay
from waypost.wire.stats_bodies import NodeHealth

OPEN_FILES = "/dev/fd"
"""Lists the open files of a process, on Linux and macOS."""


@cache
def installed_version() -> str:
    """Return the version of the installed package; it is looked up once."""
    try:
        return version("waypost")
    except PackageNotFoundError:
        return "0"


def check_node(relay: Relay, started_us: int) -> NodeHealth:
    """Return the health of this process, which opened `relay` at `started_us`."""
    inspector = relay.inspect()
    disk = shutil.disk_usage(inspector.data_dir)
    try:
        open_files = len(os.listdir(OPEN_FILES))
    except OSError:  # no descriptor is free to count the others
        open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return NodeHealth(
        version=installed_version(),
        started_us=started_us,
        synced_us=inspector.journal().committed_us,
        disk_free_bytes=disk.free,
        disk_total_bytes=disk.total,
        open_files=open_files,
        open_files_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    )
