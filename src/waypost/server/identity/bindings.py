"""Which key a subject belongs to.

Rule 1  The first key to prove itself as a subject owns it from then on.
Rule 2  A binding holds once it is on disk, and `bind` returns no earlier.
Rule 3  Only changes are written: an agent that comes back every day costs nothing.

`binding_file` says how they lie on disk, and what happens when that goes wrong.
"""

import threading
from pathlib import Path

from waypost.policy.bounds import identities_max
from waypost.server.identity.binding_file import Binding, BindingFile
from waypost.server.identity.errors import SubjectTaken, TooManyIdentities

__all__ = ["Binding", "Bindings"]


class Bindings:
    """The bindings of one relay. May be used from several threads."""

    def __init__(self, file: BindingFile, limit: int = identities_max) -> None:
        self._file = file
        self._limit = limit
        self._bindings = file.read()
        self._lock = threading.Lock()

    @classmethod
    def open(cls, path: Path) -> "Bindings":
        """The bindings in `path`, or none yet. Raises `IdentitiesDamaged`."""
        file = BindingFile(path)
        try:
            return cls(file)
        except BaseException:
            file.close()
            raise

    def __len__(self) -> int:
        return len(self._bindings)

    def get(self, subject: str) -> Binding | None:
        """The binding of `subject`, if it has one."""
        return self._bindings.get(subject)

    def bind(
        self,
        subject: str,
        public_key: str,
        at_ms: int,
        sealing_key: str | None = None,
        sealing_signature: str | None = None,
    ) -> Binding:
        """Bind `subject` to `public_key`, or find that it is. The newest sealing key is kept.

        Does not check that the keys are keys or that the signature holds. On disk when it returns.
        Raises `SubjectTaken`, `TooManyIdentities` or `IdentitiesNotSaved`.
        """
        with self._lock:
            known = self._bindings.get(subject)
            if known is None:
                self._require_room()
            elif known.public_key != public_key:
                raise SubjectTaken(subject)
            if known is not None and sealing_key is None:
                return known
            binding = Binding(
                subject=subject,
                public_key=public_key,
                at_ms=at_ms if known is None else known.at_ms,
                sealing_key=sealing_key,
                sealing_signature=sealing_signature,
            )
            if binding != known:
                self._file.append(binding)
                self._bindings[subject] = binding
                self._file.drop_replaced_lines(self._bindings.values())
            return binding

    def close(self) -> None:
        """Let go of the file. Nothing new can be bound any more."""
        with self._lock:
            self._file.close()

    def _require_room(self) -> None:
        if len(self._bindings) >= self._limit:
            raise TooManyIdentities(
                f"no more than {self._limit:,} subjects can be bound to keys at this relay"
            )
