"""Bindings on disk: `<data>/identities.jsonl`, one JSON object a line, the newest for a subject
being the one that counts.

Failures and answers:
  crash in a write      a last line without its end was never confirmed: it is cut off
  damage elsewhere      the relay does not start: a lost binding would give a name away. Each line
                        carries a checksum, so that a changed key is found too
  disk full             the binding is refused, the file left as it was
  sync failed           the binding is refused, and so is every later one until a restart: what
                        the disk holds is not known
  keys changed forever  when most lines are replaced by newer ones, the file is written anew
"""

import logging
import os
import zlib
from collections.abc import Collection
from pathlib import Path

import msgspec

from waypost.relay.data_dir import replace_file
from waypost.relay.journal.writer import sync_directory, sync_file
from waypost.server.identity.errors import IdentitiesDamaged, IdentitiesNotSaved

log = logging.getLogger("waypost.server")

REPLACED_LINES_MAX = 1000
"""With this many lines more than twice the bindings, the file is written anew."""


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`subject` belongs to `public_key` since `at_ms`. Keys and signature are base64url."""

    subject: str
    public_key: str
    at_ms: int
    sealing_key: str | None = None
    sealing_signature: str | None = None


class _Line(Binding, frozen=True, kw_only=True, omit_defaults=True):
    crc: int


class BindingFile:
    """The open file. Made if it is missing, for the owner only."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = _open_file(path)
        os.fchmod(self._descriptor, 0o600)
        sync_directory(path.parent)
        self._end = 0
        self._lines = 0
        self._failure = ""

    def read(self) -> dict[str, Binding]:
        """All bindings by subject; cuts off what was never confirmed. `IdentitiesDamaged`."""
        content = self._path.read_bytes()
        *lines, tail = content.split(b"\n")
        if b"}" in tail:  # a line is over there, so that at most its line break is missing
            lines.append(tail)
        bindings: dict[str, Binding] = {}
        for number, line in enumerate(lines, start=1):
            binding = _binding_in(line)
            known = bindings.get(binding.subject, binding) if binding else None
            if binding is None or known is None or known.public_key != binding.public_key:
                raise IdentitiesDamaged(self._damage(number))
            bindings[binding.subject] = binding
        self._lines = len(lines)
        self._end = sum(len(line) + 1 for line in lines)
        self._mend_end(len(content))
        self.drop_replaced_lines(bindings.values())
        return bindings

    def append(self, binding: Binding) -> None:
        """Write `binding`; it is on disk on return. Raises `IdentitiesNotSaved` if it is not."""
        if self._failure:
            raise IdentitiesNotSaved(f"{binding.subject} cannot be bound: {self._failure}")
        line = _line_of(binding)
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
        """Write the file anew with `bindings` alone, if most of its lines are others."""
        if self._lines < 2 * len(bindings) + REPLACED_LINES_MAX:
            return
        content = b"".join(_line_of(one) for one in bindings)
        try:
            replace_file(self._path, content)
        except OSError as problem:  # the old file is as it was
            log.warning("%s could not be written anew: %s", self._path, problem)
            return
        try:
            sync_directory(self._path.parent)
            descriptor = _open_file(self._path)
        except OSError as problem:
            self._failure = f"{self._path} was written anew and then lost ({problem.strerror})"
            log.error("%s", self._failure)
            return
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._end, self._lines = len(content), len(bindings)

    def close(self) -> None:
        """Let go of the file; nothing can be appended any more."""
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
        """Leave nothing of a line that nobody will be told is safe."""
        try:
            os.ftruncate(self._descriptor, self._end)
        except OSError as problem:
            self._failure = f"{self._path} could not be cut ({problem.strerror})"

    def _mend_end(self, length: int) -> None:
        if length == self._end:
            return
        if length > self._end:
            log.warning("%s: cut off a line that was never confirmed", self._path)
            os.ftruncate(self._descriptor, self._end)
        else:
            os.pwrite(self._descriptor, b"\n", length)
        sync_file(self._descriptor)

    def _damage(self, number: int) -> str:
        return (
            f"{self._path}, line {number} is damaged, so it is not known which key owns which"
            " subject: restore the file from a copy. Taking the line out would free its subject"
            " for whoever comes first"
        )


def _line_of(binding: Binding) -> bytes:
    content = _encode(binding)
    return b'%b,"crc":%d}\n' % (content[:-1], zlib.crc32(content))


def _binding_in(line: bytes) -> Binding | None:
    """The binding of a line exactly as it was written, or None."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    fields = {name: getattr(found, name) for name in Binding.__struct_fields__}
    binding = Binding(**fields)
    return binding if _line_of(binding) == line + b"\n" else None


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode
