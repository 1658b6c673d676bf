"""The names of a data directory, and its agents, of which there are none.

Changing names fails with `DataDirInUse` while a relay runs. Connections are in the memory of a
served relay.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from waypost.relay.clock import system_clock
from waypost.relay.data_dir import DataDir, DirectoryLock
from waypost.server.identity.binding_file import Binding, read_bindings
from waypost.server.identity.bindings import Bindings
from waypost.wire.envelopes import instant
from waypost.wire.handshake import signing_key_from, validate_agent_subject
from waypost.wire.name_bodies import NameInfo

FILE = "identities.jsonl"


class LocalNames:
    """The names of a relay in a data directory on this machine.

    `require` raises an error unless a relay has used the directory.
    """

    def __init__(self, root: Path, require: Callable[[], None]) -> None:
        self._data = DataDir(root)
        self._require = require

    def names(self) -> list[NameInfo]:
        """Return every name that belongs to a key, sorted."""
        self._require()
        found = read_bindings(self._data.root / FILE)
        return [_info(found[subject]) for subject in sorted(found)]

    def bind_name(self, subject: str, public_key: str, *, replace: bool) -> NameInfo:
        """Bind a name to a key; with `replace`, take it from another one."""
        validate_agent_subject(subject)
        signing_key_from(public_key)
        with self._locked() as bindings:
            now_ms = system_clock() // 1000
            return _info(bindings.bind_by_operator(subject, public_key, now_ms, replace=replace))

    def unbind_name(self, subject: str) -> NameInfo:
        """Free a name; return its last owner."""
        with self._locked() as bindings:
            return _info(bindings.unbind(subject))

    @contextmanager
    def _locked(self) -> Iterator[Bindings]:
        self._require()
        lock = DirectoryLock(self._data)
        try:
            bindings = Bindings.open(self._data.root / FILE)
            try:
                yield bindings
            finally:
                bindings.close()
        finally:
            lock.release()


def _info(binding: Binding) -> NameInfo:
    return NameInfo(
        subject=binding.subject,
        public_key=binding.public_key,
        bound_at=instant(binding.at_ms * 1000),
        by_operator=binding.by_operator,
        unused=binding.unused,
    )
