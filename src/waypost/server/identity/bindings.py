"""Bindings of subjects to keys; their file is in `binding_file`.

Rule 1  The first key that authenticates as a subject owns it, unless the operator bound another
        before. It stays the owner until the operator frees the subject, or it expires unused.
Rule 2  A change is valid once it is on disk, and no call returns earlier.
Rule 3  A key that a subject was taken from, or rotated from, cannot bind it again, unless the
        operator binds it.
Rule 4  Only changes are written: an agent that returns every day costs nothing. That a subject is
        in use is written once, by `save_uses`.
"""

import threading
from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Protocol

import msgspec

from waypost.policy.bounds import cards_max, identities_max, revoked_max_keys
from waypost.server.identity.binding_file import Binding, BindingFile
from waypost.server.identity.errors import (
    IdentityError,
    KeyRevoked,
    NameNotBound,
    SubjectTaken,
    TooManyCards,
    TooManyIdentities,
)
from waypost.wire.cards import AgentCard

Admit = Callable[[Binding | None, int], None]
"""Is given the binding of a subject, if any, and the number of names that the key holds."""


def _admit_all(known: Binding | None, held: int) -> None:
    """Reject nothing."""


class BindingStore(Protocol):
    """Where bindings are kept: in a file, or where several nodes share them."""

    def read(self) -> dict[str, Binding]:
        """Return all bindings by subject, freed ones included."""
        ...

    def append(self, changes: Sequence[Binding]) -> None:
        """Save changes durably. Raises `IdentitiesNotSaved`."""
        ...

    def drop_replaced_lines(self, *bindings: Collection[Binding]) -> None:
        """Use the occasion to make the store smaller: `bindings` are all that are left."""
        ...

    def close(self) -> None:
        """Accept no more changes."""
        ...


class Bindings:
    """The bindings of one relay. Safe to use from several threads."""

    def __init__(self, file: BindingStore, limit: int = identities_max) -> None:
        self._file = file
        self._limit = limit
        found = file.read()
        self._bindings = {subject: one for subject, one in found.items() if not one.freed}
        # Free subjects with keys that cannot bind them again.
        self._freed = {subject: one for subject, one in found.items() if one.freed}
        self._held = Counter(one.public_key for one in self._bindings.values())
        self._sorted = sorted(self._bindings)
        self._with_card = sorted(s for s, one in self._bindings.items() if one.card is not None)
        self.version = 0
        """Counts the names that were bound or freed since the start."""
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
            at = bisect_right(self._sorted, after)
            return [self._bindings[one] for one in self._sorted[at : at + limit]]

    def names_after(self, after: str, limit: int, *, with_card: bool = False) -> list[str]:
        """Return up to `limit` subjects behind `after`, sorted; `with_card`: only those with
        one.

        Without the lock, which is held while a change is synced: agents call this often, and a
        name that is added or removed meanwhile does no harm.
        """
        names = self._with_card if with_card else self._sorted
        at = bisect_right(names, after)
        return names[at : at + limit]

    def is_known(self, subject: str) -> bool:
        """Return whether `subject` belongs to a key, or did until its key was revoked."""
        return subject in self._bindings or subject in self._freed

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
        Raises `SubjectTaken`, `KeyRevoked`, `TooManyIdentities` or `IdentitiesNotSaved`.
        """
        with self._lock:
            known = self._bindings.get(subject)
            if known is not None and known.public_key != public_key:
                raise self._rejection(subject, public_key)
            revoked = self._revoked(subject)
            if known is None:
                if public_key in revoked:
                    raise KeyRevoked(subject, public_key)
                self._require_room(subject)
            admit(known, self._held[public_key])
            if known is not None:
                self.note_use(subject)
                if sealing_key is None:
                    return known
            first = Binding(
                subject=subject, public_key=public_key, at_ms=at_ms, unused=True, revoked=revoked
            )
            binding = msgspec.structs.replace(
                known or first, sealing_key=sealing_key, sealing_signature=sealing_signature
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
                self._require_room(subject)
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
                    revoked=self._revoked(subject, but=public_key),
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
            self._save([_freed(known, _last_keys((*known.revoked, known.public_key)))])
            return known

    def rotate(  # noqa: PLR0913 - each is part of one proof
        self,
        subject: str,
        public_key: str,
        new_key: str,
        at_ms: int,
        sealing_key: str | None = None,
        sealing_signature: str | None = None,
        *,
        admit: Admit = _admit_all,
    ) -> bool:
        """Move `subject` from the key that owns it to another one, which proved that it agrees.

        Return False if that was done before. `admit` may raise. Raises `NameNotBound`,
        `SubjectTaken`, `KeyRevoked` or `IdentitiesNotSaved`.
        """
        with self._lock:
            known = self._bindings.get(subject)
            if known is None:
                raise NameNotBound(subject, "connect with the new key instead: it is free")
            if known.public_key == new_key and public_key in known.revoked:
                return False
            if known.public_key != public_key:
                raise self._rejection(subject, public_key)
            if new_key in known.revoked:
                raise KeyRevoked(subject, new_key)
            admit(known, self._held[new_key])
            moved = msgspec.structs.replace(
                known,
                public_key=new_key,
                at_ms=at_ms,
                sealing_key=sealing_key,
                sealing_signature=sealing_signature,
                unused=False,
                replaces=public_key,
                revoked=self._revoked(subject, but=new_key),
            )
            self._save([moved])
            return True

    def set_card(
        self, subject: str, card: AgentCard | None, *, admit: Admit = _admit_all
    ) -> Binding:
        """Keep the card of a bound subject. `admit` may raise, and is asked about changes only.

        Raises `NameNotBound`, `TooManyCards` or `IdentitiesNotSaved`.
        """
        with self._lock:
            known = self._bindings.get(subject)
            if known is None:
                raise NameNotBound(subject, "connect before you set a card")
            if known.card == card:
                return known
            if known.card is None and len(self._with_card) >= cards_max:
                raise TooManyCards(f"too many cards: this relay keeps at most {cards_max:,}")
            admit(known, self._held[known.public_key])
            changed = msgspec.structs.replace(known, card=card)
            self._save([changed])
            return changed

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
            known = [self._bindings[one] for one in found]
            self._save([_freed(one, one.revoked) for one in known])
            return found

    def close(self) -> None:
        """Close the file. Later changes fail."""
        with self._lock:
            self._file.close()

    def _revoked(self, subject: str, but: str = "") -> tuple[str, ...]:
        """Return the keys that `subject` had until now and that cannot bind it, without `but`."""
        known = self._bindings.get(subject)
        if known is not None:
            keys = (*known.revoked, known.public_key)
        else:
            keys = self._freed[subject].revoked if subject in self._freed else ()
        return _last_keys(tuple(one for one in keys if one != but))

    def _rejection(self, subject: str, public_key: str) -> IdentityError:
        """Return the error for a key that does not own `subject`, which another one does."""
        if public_key in self._bindings[subject].revoked:
            return KeyRevoked(subject, public_key)
        return SubjectTaken(subject)

    def _require_room(self, subject: str) -> None:
        if subject in self._freed:
            return
        if len(self._bindings) + len(self._freed) >= self._limit:
            raise TooManyIdentities(
                f"too many identities: this relay binds at most {self._limit:,} subjects to keys"
            )

    def _save(self, changes: list[Binding]) -> None:
        """Write `changes` and apply them. Raises `IdentitiesNotSaved`; nothing is changed then."""
        if not changes:
            return
        self._file.append(changes)
        self._apply(changes)
        self._file.drop_replaced_lines(self._bindings.values(), self._freed.values())

    def learn(self, changes: Iterable[Binding]) -> None:
        """Apply changes that another node has saved."""
        with self._lock:
            self._apply(one for one in changes if one != self._known(one.subject))

    def _known(self, subject: str) -> Binding | None:
        return self._bindings.get(subject) or self._freed.get(subject)

    def _apply(self, changes: Iterable[Binding]) -> None:
        for one in changes:
            self._count(one)
            self._sort(one)
            if one.freed:
                self._bindings.pop(one.subject, None)
                if one.revoked:
                    self._freed[one.subject] = one
            else:
                self._bindings[one.subject] = one
                self._freed.pop(one.subject, None)
            if one.unused:
                self._unused[one.subject] = None
            else:
                self._unused.pop(one.subject, None)
                self._noted.discard(one.subject)

    def _sort(self, change: Binding) -> None:
        """Keep the sorted subjects."""
        before = self._bindings.get(change.subject)
        if (before is None) is not change.freed:
            self.version += 1
        had_card = before is not None and before.card is not None
        _place(self._sorted, change.subject, was=before is not None, is_=not change.freed)
        _place(self._with_card, change.subject, was=had_card, is_=change.card is not None)

    def _count(self, change: Binding) -> None:
        """Count the names of the keys that `change` concerns."""
        before = self._bindings.get(change.subject)
        if before is not None:
            self._held[before.public_key] -= 1
            if not self._held[before.public_key]:
                del self._held[before.public_key]
        if not change.freed:
            self._held[change.public_key] += 1


def _place(names: list[str], name: str, *, was: bool, is_: bool) -> None:
    """Add a name to sorted ones, or remove it."""
    if is_ and not was:
        insort(names, name)
    elif was and not is_:
        del names[bisect_left(names, name)]


def _freed(known: Binding, revoked: tuple[str, ...]) -> Binding:
    return Binding(
        subject=known.subject,
        public_key=known.public_key,
        at_ms=known.at_ms,
        freed=True,
        revoked=revoked,
    )


def _last_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Return the newest of `keys`, each once."""
    return tuple(dict.fromkeys(keys))[-revoked_max_keys:]
