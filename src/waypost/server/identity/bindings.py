"""Bindings of subjects to keys, and their file `<data>/identities.jsonl`.

Rule 1  The first key that authenticates as a subject owns it from then on.
Rule 2  A binding is valid once it is on disk, and `bind` returns no earlier.
Rule 3  Only changes are written: an agent that returns every day costs nothing.

The file holds one JSON object per line; the newest line of a subject is valid.

Failures and answers:
  crash in a write      an unfinished last line was never confirmed: it is cut off
  damage elsewhere      the relay does not start: a lost binding would free a subject for another
                        key. Each line has a checksum, so a changed key is found too
  disk full             the binding is rejected, the file unchanged
  sync failed           the binding is rejected, and so is every later one until a restart: the
                        content of the disk is unknown
  keys changed forever  the file is rewritten once most of its lines have been replaced by newer
"""

import logging
import os
import threading
import zlib
from collections.abc import Collection
from pathlib import Path

import msgspec

from waypost.policy.bounds import identities_max
from waypost.relay.data_dir import replace_file, sync_directory, sync_file
from waypost.server.identity.errors import (
    IdentitiesDamaged,
    IdentitiesNotSaved,
    SubjectTaken,
    TooManyIdentities,
)

log = logging.getLogger("waypost.server")

REPLACED_LINES_MAX = 1000
"""With this many lines more than twice the bindings, the file is rewritten."""


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`subject` belongs to `public_key` since `at_ms`. Keys and signature are base64url."""

    subject: str
    public_key: str
    at_ms: int
    sealing_key: str | None = None
    sealing_signature: str | None = None


class _Line(Binding, frozen=True, kw_only=True, omit_defaults=True):
    crc: int


class Bindings:
    """The bindings of one relay. Safe to use from several threads."""

    def __init__(self, file: "BindingFile", limit: int = identities_max) -> None:
        self._file = file
        self._limit = limit
        self._bindings = file.read()
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

    def bind(
        self,
        subject: str,
        public_key: str,
        at_ms: int,
        sealing_key: str | None = None,
        sealing_signature: str | None = None,
    ) -> Binding:
        """Bind `subject` to `public_key`, unless it is bound already. Keep the newest sealing key.

        Does not validate keys or signature. The binding is on disk on return. Raises
        `SubjectTaken`, `TooManyIdentities` or `IdentitiesNotSaved`.
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
        """Close the file. Later bindings fail."""
        with self._lock:
            self._file.close()

    def _require_room(self) -> None:
        if len(self._bindings) >= self._limit:
            raise TooManyIdentities(
                f"too many identities: this relay binds at most {self._limit:,} subjects to keys"
            )


class BindingFile:
    """The open file, created if missing, accessible to the owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = _open_file(path)
        os.fchmod(self._descriptor, 0o600)
        sync_directory(path.parent)
        self._end = 0
        self._lines = 0
        self._failure = ""

    def read(self) -> dict[str, Binding]:
        """Return all bindings by subject; drop an unfinished line. Raises `IdentitiesDamaged`."""
        content = self._path.read_bytes()
        *lines, tail = content.split(b"\n")
        if b"}" in tail:  # a complete line of which at most the line break is missing
            lines.append(tail)
        bindings: dict[str, Binding] = {}
        for number, line in enumerate(lines, start=1):
            binding = _parse_line(line)
            known = bindings.get(binding.subject, binding) if binding else None
            if binding is None or known is None or known.public_key != binding.public_key:
                raise IdentitiesDamaged(self._damage(number))
            bindings[binding.subject] = binding
        self._lines = len(lines)
        self._end = sum(len(line) + 1 for line in lines)
        self._repair_end(len(content))
        self.drop_replaced_lines(bindings.values())
        return bindings

    def append(self, binding: Binding) -> None:
        """Write `binding`; it is on disk on return. Raises `IdentitiesNotSaved`."""
        if self._failure:
            raise IdentitiesNotSaved(f"{binding.subject} cannot be bound: {self._failure}")
        line = _format_line(binding)
        try:
            self._write(line)
        except OSError as problem:
            self._cut_off()
            raise IdentitiesNotSaved(
                f"{binding.subject} cannot be bound: {self._path} could not be written"
                f" ({problem.strerror})"
            ) from None
        self._end += len(line)
        self._lines += 1

    def drop_replaced_lines(self, bindings: Collection[Binding]) -> None:
        """Rewrite the file with `bindings` alone, if most of its lines are outdated."""
        if self._lines < 2 * len(bindings) + REPLACED_LINES_MAX:
            return
        content = b"".join(_format_line(one) for one in bindings)
        try:
            replace_file(self._path, content)
        except OSError as problem:  # the old file is unchanged
            log.warning("%s could not be rewritten: %s", self._path, problem)
            return
        try:
            sync_directory(self._path.parent)
            descriptor = _open_file(self._path)
        except OSError as problem:
            self._failure = (
                f"{self._path} was rewritten but cannot be opened again ({problem.strerror})"
            )
            log.error("%s", self._failure)
            return
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._end, self._lines = len(content), len(bindings)

    def close(self) -> None:
        """Close the file. Later appends fail."""
        self._failure = "the relay is closed"
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _write(self, line: bytes) -> None:
        done = 0
        while done < len(line):
            done += os.pwrite(self._descriptor, line[done:], self._end + done)
        try:
            sync_file(self._descriptor)
        except OSError as problem:
            self._failure = f"{self._path} could not be synced ({problem.strerror})"
            raise

    def _cut_off(self) -> None:
        """Remove the rest of a line that was not confirmed."""
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError as problem:
            self._failure = f"{self._path} could not be truncated ({problem.strerror})"

    def _repair_end(self, length: int) -> None:
        if length == self._end:
            return
        if length > self._end:
            log.warning("%s: cut off an unfinished line that was never confirmed", self._path)
            os.ftruncate(self._descriptor, self._end)
        else:
            os.pwrite(self._descriptor, b"\n", length)
        sync_file(self._descriptor)

    def _damage(self, number: int) -> str:
        return (
            f"{self._path}, line {number} is damaged, so the owner of a subject is unknown:"
            " restore the file from a backup. Removing the line would free its subject for the"
            " first key that authenticates"
        )


def _format_line(binding: Binding) -> bytes:
    content = _encode(binding)
    return b'%b,"crc":%d}\n' % (content[:-1], zlib.crc32(content))


def _parse_line(line: bytes) -> Binding | None:
    """Return the binding of a line exactly as it was written, or None."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    fields = {name: getattr(found, name) for name in Binding.__struct_fields__}
    binding = Binding(**fields)
    return binding if _format_line(binding) == line + b"\n" else None


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode
