"""Bindings of subjects to keys; their file is in `binding_file`.

Rule 1  The first key that authenticates as a subject owns it, unless the operator bound another
        before. It stays the owner until the operator frees the subject, or it expires unused.
Rule 2  A change is valid once it is on disk, and no call returns earlier.
Rule 3  Only changes are written: an agent that returns every day costs nothing. That a subject is
        in use is written once, by `save_uses`.
"""

import heapq
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path

import msgspec

from waypost.policy.bounds import identities_max
from waypost.server.identity.binding_file import Binding, BindingFile
from waypost.server.identity.errors import NameNotBound, SubjectTaken, TooManyIdentities

Admit = Callable[[Binding | None, int], None]
"""Is given the binding of a subject, if any, and the number of names that the key holds."""


def _admit_all(known: Binding | None, held: int) -> None:
    """Reject nothing."""


class Bindings:
    """The bindings of one relay. Safe to use from several threads."""

    def __init__(self, file: BindingFile, limit: int = identities_max) -> None:
        self._file = file
        self._limit = limit
        self._bindings = file.read()
        self._held = Counter(one.public_key for one in self._bindings.values())
        # The oldest first; `_noted` have been used since, which is not written yet.
        self._unused = dict.fromkeys(s for s, one in self._bindings.items() if one.unused)
        self._noted: set[str] = set()
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> "Bindings":
        """Read the bindings in `path`; there may be none yet. Raises `IdentitiesDamaged`."""
        file = BindingFile(path)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    def __len__(self) -> int:
        return len(self._bindings)

    def get(self, subject: str) -> Binding | None:
        """Return the binding of `subject`, or None."""
        return self._bindings.get(subject)

    def page(self, after: str, limit: int) -> list[Binding]:
        """Return up to `limit` bindings of subjects behind `after`, sorted by subject."""
        with self._lock:
            subjects = heapq.nsmallest(limit, (one for one in self._bindings if one > after))
            return [self._bindings[one] for one in subjects]

    def bind(
        self,
        subject: str,
        public_key: str,
        at_ms: int,
        sealing_key: str | None = None,
        sealing_signature: str | None = None,
        *,
        admit: Admit = _admit_all,
    ) -> Binding:
        """Bind `subject` to `public_key`, unless it is bound already. Keep the newest sealing key.

        Does not validate keys or signature. `admit` may raise. The binding is on disk on return.
        Raises `SubjectTaken`, `TooManyIdentities` or `IdentitiesNotSaved`.
        """
        with self._lock:
            known = self._bindings.get(subject)
            if known is not None and known.public_key != public_key:
                raise SubjectTaken(subject)
            if known is None:
                self._require_room()
            admit(known, self._held[public_key])
            if known is not None:
                self.note_use(subject)
                if sealing_key is None:
                    return known
            binding = Binding(
                subject=subject,
                public_key=public_key,
                at_ms=at_ms if known is None else known.at_ms,
                sealing_key=sealing_key,
                sealing_signature=sealing_signature,
                by_operator=known is not None and known.by_operator,
                unused=known is None or known.unused,
            )
            if binding != known:
                self._save([binding])
            return binding

    def bind_by_operator(
        self, subject: str, public_key: str, at_ms: int, *, replace: bool = False
    ) -> Binding:
        """Bind `subject` to the key that the operator chose, or confirm its binding.

        With `replace`, it is taken from another key in the same step. Raises `SubjectTaken`,
        `TooManyIdentities` or `IdentitiesNotSaved`.
        """
        with self._lock:
            known = self._bindings.get(subject)
            if known is None:
                self._require_room()
            elif known.public_key != public_key and not replace:
                raise SubjectTaken(subject, "to take it from that key, use --replace")
            if known is not None and known.public_key == public_key:
                binding = msgspec.structs.replace(known, by_operator=True, unused=False)
                changes = [binding] if binding != known else []
            else:
                binding = Binding(
                    subject=subject,
                    public_key=public_key,
                    at_ms=at_ms,
                    by_operator=True,
                    replaces=None if known is None else known.public_key,
                )
                changes = [binding]
            self._save(changes)
            return binding

    def unbind(self, subject: str) -> Binding:
        """Free `subject`; return its last binding. Raises `NameNotBound`, `IdentitiesNotSaved`."""
        with self._lock:
            known = self._bindings.get(subject)
            if known is None:
                raise NameNotBound(subject)
            self._save([_freed(known)])
            return known

    def note_use(self, subject: str) -> None:
        """Remember that `subject` is in use, so that it does not expire."""
        if subject in self._unused:
            self._noted.add(subject)

    def unused(self, after: int, limit: int) -> list[Binding]:
        """Return up to `limit` unused bindings, the oldest first, without the first `after`."""
        with self._lock:
            return [self._bindings[one] for one in islice(self._unused, after, after + limit)]

    @property
    def has_unsaved_uses(self) -> bool:
        """Whether there is anything for `save_uses` to write."""
        return bool(self._noted)

    def save_uses(self) -> None:
        """Write which subjects have been used since. Raises `IdentitiesNotSaved`."""
        with self._lock:
            known = [self._bindings[one] for one in list(self._noted) if one in self._unused]
            self._save([msgspec.structs.replace(one, unused=False) for one in known])

    def expire(self, subjects: Iterable[str]) -> list[str]:
        """Free those of `subjects` that are still unused; return them."""
        with self._lock:
            found = [one for one in subjects if one in self._unused and one not in self._noted]
            self._save([_freed(self._bindings[one]) for one in found])
            return found

    def close(self) -> None:
        """Close the file. Later changes fail."""
        with self._lock:
            self._file.close()

    def _require_room(self) -> None:
        if len(self._bindings) >= self._limit:
            raise TooManyIdentities(
                f"too many identities: this relay binds at most {self._limit:,} subjects to keys"
            )

    def _save(self, changes: list[Binding]) -> None:
        """Write `changes` and apply them. Raises `IdentitiesNotSaved`; nothing is changed then."""
        if not changes:
            return
        self._file.append(changes)
        for one in changes:
            self._count(one)
            if one.freed:
                del self._bindings[one.subject]
            else:
                self._bindings[one.subject] = one
            if one.unused:
                self._unused[one.subject] = None
            else:
                self._unused.pop(one.subject, None)
                self._noted.discard(one.subject)
        self._file.drop_replaced_lines(self._bindings.values())

    def _count(self, change: Binding) -> None:
        """Count the names of the keys that `change` concerns."""
        before = self._bindings.get(change.subject)
        if before is not None:
            self._held[before.public_key] -= 1
            if not self._held[before.public_key]:
                del self._held[before.public_key]
        if not change.freed:
            self._held[change.public_key] += 1


def _freed(known: Binding) -> Binding:
    return Binding(
        subject=known.subject, public_key=known.public_key, at_ms=known.at_ms, freed=True
    )
