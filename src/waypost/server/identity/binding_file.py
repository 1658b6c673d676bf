"""The file of bindings, `<data>/identities.jsonl`: one JSON object per line, each with a checksum.

A line binds a subject to a key, changes its binding, or frees it; the newest line of a subject is
valid. A line of another key is valid only after the subject was freed, or if it names the key that
it replaces. The line of a freed subject is kept as long as it names keys that were revoked.

Failures and answers:
  crash in a write      an unfinished last line was never confirmed: it is cut off
  damage elsewhere      the relay does not start: a lost binding would free a subject for another
                        key. Each line has a checksum, so a changed key is found too
  disk full             the change is rejected, the file unchanged
  sync failed           the change is rejected, and so is every later one until a restart: the
                        content of the disk is unknown
  keys changed forever  the file is rewritten once most of its lines have been replaced by newer
"""

import logging
import os
import zlib
from collections.abc import Collection, Sequence
from itertools import chain
from pathlib import Path

import msgspec

from waypost.policy.errors import InvalidInput
from waypost.relay.data_dir import replace_file, sync_directory, sync_file
from waypost.server.identity.errors import IdentitiesDamaged, IdentitiesNotSaved
from waypost.wire.cards import AgentCard

log = logging.getLogger("waypost.server")

REPLACED_LINES_MAX = 1000
"""With this many lines more than twice the bindings, the file is rewritten."""


class Binding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """`subject` belongs to `public_key` since `at_ms`. Keys and signature are base64url.

    `by_operator`: the operator bound it. `unused`: its agent has done nothing but bind it; lines
    of earlier versions count as used. `freed`: it belongs to no key any more. `replaces`: the key
    that it belonged to before. `revoked`: keys that cannot bind it again, the newest last.
    `card`: what its agent says about itself.
    """

    subject: str
    public_key: str
    at_ms: int
    sealing_key: str | None = None
    sealing_signature: str | None = None
    by_operator: bool = False
    unused: bool = False
    freed: bool = False
    replaces: str | None = None
    revoked: tuple[str, ...] = ()
    card: AgentCard | None = None


class _Line(Binding, frozen=True, kw_only=True, omit_defaults=True):
    crc: int


def read_bindings(path: Path) -> dict[str, Binding]:
    """Return the bindings in `path` without changing it. Raises `IdentitiesDamaged`."""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    found = _fold(_lines(content), path)
    return {subject: one for subject, one in found.items() if not one.freed}


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
        """Return all bindings by subject, freed ones included; drop an unfinished line.

        Raises `IdentitiesDamaged`.
        """
        content = self._path.read_bytes()
        lines = _lines(content)
        bindings = _fold(lines, self._path)
        self._lines = len(lines)
        self._end = sum(len(line) + 1 for line in lines)
        self._repair_end(len(content))
        self.drop_replaced_lines(bindings.values())
        return bindings

    def append(self, changes: Sequence[Binding]) -> None:
        """Write `changes`; they are on disk on return. Raises `IdentitiesNotSaved`.

        After a crash meanwhile, the first ones may be on disk.
        """
        if self._failure:
            raise IdentitiesNotSaved(f"{_named(changes)} cannot be saved: {self._failure}")
        lines = b"".join(_format_line(one) for one in changes)
        try:
            self._write(lines)
        except OSError as problem:
            self._cut_off()
            raise IdentitiesNotSaved(
                f"{_named(changes)} cannot be saved: {self._path} could not be written"
                f" ({problem.strerror})"
            ) from None
        self._end += len(lines)
        self._lines += len(changes)

    def drop_replaced_lines(self, *bindings: Collection[Binding]) -> None:
        """Rewrite the file with `bindings` alone, if most of its lines are outdated."""
        kept = sum(map(len, bindings))
        if self._lines < 2 * kept + REPLACED_LINES_MAX:
            return
        content = b"".join(_format_line(one) for one in chain(*bindings))
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
        self._end, self._lines = len(content), kept

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


def _lines(content: bytes) -> list[bytes]:
    """Return the complete lines of the file."""
    *lines, tail = content.split(b"\n")
    if b"}" in tail:  # a complete line of which at most the line break is missing
        lines.append(tail)
    return lines


def _fold(lines: Sequence[bytes], path: Path) -> dict[str, Binding]:
    """Return the bindings by subject that `lines` result in. Raises `IdentitiesDamaged`."""
    bindings: dict[str, Binding] = {}
    for number, line in enumerate(lines, start=1):
        binding = _parse_line(line)
        if binding is None or not _follows(binding, bindings.get(binding.subject)):
            raise IdentitiesDamaged(
                f"{path}, line {number} is damaged, so the owner of a subject is unknown:"
                " restore the file from a backup. Removing the line would free its subject for the"
                " first key that authenticates"
            )
        if binding.freed and not binding.revoked:
            bindings.pop(binding.subject, None)
        else:
            bindings[binding.subject] = binding
    return bindings


def _follows(binding: Binding, known: Binding | None) -> bool:
    if known is None:
        return not binding.freed or bool(binding.revoked)
    if known.freed:
        return not binding.freed
    return known.public_key in (binding.public_key, binding.replaces)


def _named(changes: Sequence[Binding]) -> str:
    first = changes[0].subject
    return first if len(changes) == 1 else f"{first} and {len(changes) - 1:,} more"


def _format_line(binding: Binding) -> bytes:
    content = _encode(binding)
    return b'%b,"crc":%d}\n' % (content[:-1], zlib.crc32(content))


def _parse_line(line: bytes) -> Binding | None:
    """Return the binding of a line exactly as it was written, or None."""
    try:
        found = _decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, InvalidInput):
        return None
    fields = {name: getattr(found, name) for name in Binding.__struct_fields__}
    binding = Binding(**fields)
    return binding if _format_line(binding) == line + b"\n" else None


def _open_file(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Line).decode
