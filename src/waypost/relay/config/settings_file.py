"""Settings from `<data>/config.json`, which override the caller's and the defaults.

Failures and answers:
  no file           the caller's settings
  one bad value     the whole file is ignored, the last good settings stay, and the problem is
                    logged and shown in the metrics
  a pipe, a device  the same; opening it does not wait
  a huge file, or a
  link to nothing
  storage changed   rejected until the next start: mailboxes cannot change their storage while
                    the relay runs
"""

import logging
from collections.abc import Callable

from waypost.files import is_transient, read_file
from waypost.policy.bounds import config_file_max_bytes
from waypost.policy.errors import InvalidSettings
from waypost.policy.settings import Settings, lint, merge_settings, validate_settings
from waypost.relay.data_dir import DataDir, replace_linked_file

log = logging.getLogger("waypost.relay")


class SettingsFile:
    """The settings in force."""

    def __init__(self, data: DataDir, given: Settings) -> None:
        self._path = data.config
        self._given = validate_settings(given)
        self.current = self._given
        self.problem = ""
        self.on_change: Callable[[], None] = lambda: None
        self._opened = False
        self.reload()
        self._opened = True
        for note in lint(self.current):
            log.warning("settings: %s", note)

    def get(self) -> Settings:
        """Return the settings in force."""
        return self.current

    def read(self) -> bytes | None:
        """Return the content of the file, or None."""
        try:
            return read_file(self._path, config_file_max_bytes)
        except FileNotFoundError:
            return None

    def consider(self, content: bytes) -> Settings:
        """Return the settings that `content` would give, or raise `InvalidSettings`."""
        settings = merge_settings(self._given, content)
        if self._opened and settings.storage != self.current.storage:
            raise InvalidSettings("'storage' can only be changed while the relay is stopped")
        return settings

    def replace(self, content: bytes) -> None:
        """Write `content` to the file and apply it, or raise `InvalidSettings`."""
        self.consider(content)
        replace_linked_file(self._path, content)
        self.reload()

    def reload(self) -> bool:
        """Read the file again; return whether anything changed.

        Raises `OSError` if it cannot be opened now, for want of descriptors: try again.
        """
        before = (self.current, self.problem)
        try:
            content = read_file(self._path, config_file_max_bytes)
            self.current, self.problem = self.consider(content), ""
        except FileNotFoundError:
            self.current, self.problem = self._given, ""
        except (OSError, InvalidSettings) as problem:
            if is_transient(problem):
                raise
            self.problem = f"{self._path} is ignored: {problem}"
            if self.problem != before[1]:
                log.error("%s", self.problem)
        changed = (self.current, self.problem) != before
        if changed:
            self.on_change()
        return changed
