"""The search for drop-ins that no watch has seen: put straight into `new/`, or while it was lost.

Rule 1  Each sweep begins a search, unless the last one is still under way.
Rule 2  Directories are read by a thread, a few at a time, and only if they changed. One that
        changed is read again by the next search, because a further change within the same tick of
        the file system's clock leaves no trace. So is one with a file that may be unfinished.
Rule 3  What the thread found is checked by the loop against the state of that moment: a file of
        the relay itself that is gone by then was never a drop-in.
"""

import asyncio
import logging

from waypost.policy.bounds import turn_max_messages
from waypost.relay.delivery.drop_ins import DropIns
from waypost.relay.maildir.maildir import Maildir
from waypost.relay.state.relay_state import RelayState

log = logging.getLogger("waypost.relay")

_DIRECTORIES_AT_ONCE = 64


class DropInSearch:
    """Searches all mailboxes for drop-ins."""

    def __init__(self, drop_ins: DropIns, maildir: Maildir, state: RelayState) -> None:
        self._drop_ins = drop_ins
        self._maildir = maildir
        self._state = state
        self._changed_ns: dict[str, int] = {}
        """When each directory had last changed, as of the last search."""
        self._due: set[str] = set()
        self._task: asyncio.Task[None] | None = None

    @property
    def busy(self) -> bool:
        """Whether a search is under way."""
        return self._task is not None and not self._task.done()

    def begin(self, now_us: int) -> None:
        """Begin a search, unless one is under way."""
        if not self.busy:
            self._task = asyncio.get_running_loop().create_task(self._search())

    async def stop(self) -> None:
        """End the search."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _search(self) -> None:
        hashes = [mailbox.hash for mailbox in self._state.registered()]
        self._changed_ns = {one: self._changed_ns.get(one, 0) for one in hashes}
        self._due &= self._changed_ns.keys()
        try:
            for begin in range(0, len(hashes), _DIRECTORIES_AT_ONCE):
                some = hashes[begin : begin + _DIRECTORIES_AT_ONCE]
                for hash_, changed_ns, names in await asyncio.to_thread(self._read, some):
                    await self._check(hash_, changed_ns, names)
        except OSError as problem:
            log.warning("the search for drop-ins is repeated: %s", problem)

    def _read(self, hashes: list[str]) -> list[tuple[str, int, list[str]]]:
        """Return the directories that must be checked: when they changed, and their files."""
        found = []
        for hash_ in hashes:
            changed_ns = self._maildir.changed_ns(hash_)
            if changed_ns != self._changed_ns.get(hash_) or hash_ in self._due:
                found.append((hash_, changed_ns, sorted(self._maildir.sizes(hash_, "new"))))
        return found

    async def _check(self, hash_: str, changed_ns: int, names: list[str]) -> None:
        finished = changed_ns == self._changed_ns.get(hash_)
        self._due.add(hash_)
        for begin in range(0, len(names), turn_max_messages):
            for name in names[begin : begin + turn_max_messages]:
                finished &= self._drop_ins.check(hash_, name, may_be_unfinished=True)
            await asyncio.sleep(0)
        self._changed_ns[hash_] = changed_ns
        if finished:
            self._due.discard(hash_)
