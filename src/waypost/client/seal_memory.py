"""What an agent remembers of sealed messages: the keys of other agents, and opened seals.

Rule 1  The first key of an agent is kept. A later one is an error until `trust` accepts it, or
        until a person removes the line of the agent from the file.
Rule 2  A seal that was opened and whose message was acknowledged does not open again. One that was
        not acknowledged does: messages are delivered at least once.
Rule 3  Both are kept beside the key file, as lines of text; in memory only for keys without a file.
        A file that cannot be written costs a warning, not a message.
Rule 4  Both are bounded. New keys never displace known ones, or a flood of names would. Of opened
        seals the oldest are dropped, and seals that are older than an option allows do not open.
"""

import hashlib
import logging
import os
from collections import OrderedDict
from pathlib import Path

from waypost.client.identity import KeyFileExposed, KeyFileInvalid
from waypost.files import ExposedFile, read_secret
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import is_subject, validate_subject
from waypost.wire.handshake import signing_key_from, to_text

log = logging.getLogger("waypost.client")

KNOWN_KEYS_MAX = 10_000
OPENED_SEALS_MAX = 50_000
_LINE_MAX_BYTES = 320
_DIGEST_BYTES = 16


class SealMemory:
    """The memory of one agent. `base` names its files: `base`.known and `base`.opened.

    Raises `KeyFileExposed` or `KeyFileInvalid` for files that cannot be used.
    """

    def __init__(self, base: Path | None) -> None:
        self._known_file = _LineFile(base, ".known", 2 * KNOWN_KEYS_MAX)
        self._opened_file = _LineFile(base, ".opened", 2 * OPENED_SEALS_MAX)
        self._pinned: dict[str, str] = {}
        self._known = dict(map(self._known_file.parse_key, self._known_file.load()))
        opened = self._opened_file.load()
        self._opened = OrderedDict.fromkeys(opened[-OPENED_SEALS_MAX:])
        if len(opened) > OPENED_SEALS_MAX:
            self._opened_file.rewrite(list(self._opened))
        self._appended = 0

    def trust(self, subject: str, public_key: str) -> None:
        """Pin the key of `subject`, in place of any known one. Raises `InvalidInput`."""
        validate_subject(subject)
        signing_key_from(public_key)
        self._pinned[subject] = public_key
        if self._known.get(subject) != public_key:
            self._remember(subject, public_key)

    def is_pinned(self, subject: str) -> bool:
        """Return whether `trust` was called for `subject`."""
        return subject in self._pinned

    def check_key(self, subject: str, public_key: str) -> str | None:
        """Return why `public_key` is not the key of `subject`; remember it at first use."""
        known = self._known.get(subject)
        if known is None:
            if len(self._known) < KNOWN_KEYS_MAX:
                self._remember(subject, public_key)
            return None
        if known == public_key:
            return None
        return (
            f"{public_key} is another key than {known}, which is known of {subject}: if its owner"
            f" has changed it, {self._known_file.how_to_forget}call trust() with the new card;"
            " otherwise someone else uses the name"
        )

    def is_opened(self, seal: str) -> bool:
        """Return whether the message of `seal` was opened and acknowledged before."""
        return seal in self._opened

    def mark_opened(self, seal: str) -> None:
        """Record that the message of `seal` was opened and acknowledged."""
        if seal in self._opened:
            return
        self._opened[seal] = None
        if len(self._opened) > OPENED_SEALS_MAX:
            self._opened.popitem(last=False)
        self._appended += 1
        if self._appended > OPENED_SEALS_MAX:
            self._appended = 0
            self._opened_file.rewrite(list(self._opened))
        else:
            self._opened_file.append(seal)

    def _remember(self, subject: str, public_key: str) -> None:
        self._known[subject] = public_key
        self._known_file.append(f"{subject} {public_key}")


def seal_digest(sender: str, message_id: str, ephemeral: str) -> str:
    """Return a short text that stands for one seal; its ephemeral key is unique."""
    text = f"{sender}\n{message_id}\n{ephemeral}".encode()
    return to_text(hashlib.sha256(text).digest()[:_DIGEST_BYTES])


class _LineFile:
    """Lines that are appended; without a `base`, nothing is stored."""

    def __init__(self, base: Path | None, suffix: str, lines_max: int) -> None:
        self._path = None if base is None else base.with_name(base.name + suffix)
        self._max_bytes = lines_max * _LINE_MAX_BYTES
        self._is_writable = True

    @property
    def how_to_forget(self) -> str:
        """Return the part of an error text about removing a line."""
        return "" if self._path is None else f"remove its line from {self._path}, or "

    def load(self) -> list[str]:
        """Return all complete lines."""
        if self._path is None:
            return []
        try:
            content = read_secret(self._path, self._max_bytes).decode("ascii")
        except FileNotFoundError:
            return []
        except ExposedFile as problem:
            raise KeyFileExposed(f"{self._path} is {problem.strerror}") from None
        except (OSError, UnicodeDecodeError) as problem:
            raise KeyFileInvalid(f"cannot read {self._path}: {problem}") from None
        lines = content.splitlines()
        if content and not content.endswith("\n"):
            if not _is_key_line(lines[-1]):
                lines.pop()  # a crash has torn it
            self.rewrite(lines)
        return lines

    def parse_key(self, line: str) -> tuple[str, str]:
        """Return subject and key of a line. Raises `KeyFileInvalid`."""
        if not _is_key_line(line):
            raise KeyFileInvalid(
                f"{self._path} has a line that is not a subject and its key: remove {line!r:.80}"
            )
        subject, public_key = line.split(" ")
        return subject, public_key

    def append(self, line: str) -> None:
        """Add a line."""
        self._write(os.O_APPEND, f"{line}\n")

    def rewrite(self, lines: list[str]) -> None:
        """Replace all lines. A crash meanwhile loses some, and nothing else."""
        self._write(os.O_TRUNC, "".join(f"{line}\n" for line in lines))

    def _write(self, flag: int, text: str) -> None:
        if self._path is None or not self._is_writable:
            return
        flags = os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | flag
        try:
            descriptor = os.open(self._path, flags, 0o600)
            with open(descriptor, "wb") as file:
                file.write(text.encode())
        except OSError as problem:
            self._is_writable = False
            log.warning(
                "cannot write %s (%s): what it would remember is lost at the end of this process",
                self._path,
                problem.strerror,
            )


def _is_key_line(line: str) -> bool:
    subject, _, public_key = line.partition(" ")
    try:
        signing_key_from(public_key)
    except InvalidInput:
        return False
    return is_subject(subject)
