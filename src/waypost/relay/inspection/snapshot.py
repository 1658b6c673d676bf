"""A look at a data directory from outside: nothing is locked, nothing is changed.

It works while a relay runs there. What is seen is one instant of the near past: the last
checkpoint of the index and every commit after it.
"""

import sqlite3
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

import msgspec

from waypost.policy.errors import InvalidSettings
from waypost.policy.settings import Settings, merge_settings
from waypost.relay.config.access_file import AccessFile
from waypost.relay.data_dir import DataDir, owner_of
from waypost.relay.journal.segments import Batch, Damage, list_segments, read_segment, segment_bytes
from waypost.relay.state.recovery import RecoveryReport, recover
from waypost.relay.state.relay_state import RelayState
from waypost.wire.events import Rejected, SettingsChanged

T = TypeVar("T")

_ATTEMPTS = 5


class Look(msgspec.Struct):
    """What was seen. `owner` is the pid of the relay that runs there, empty if none does."""

    data: DataDir
    state: RelayState
    settings: Settings
    owner: str
    report: RecoveryReport
    problems: list[str]


class Recent(msgspec.Struct):
    """What happened from `since_us` on: events by kind, refused publishes by reason."""

    since_us: int = 0
    events: Counter[str] = msgspec.field(default_factory=Counter)
    rejected: Counter[str] = msgspec.field(default_factory=Counter)


def look(data: DataDir, *, use_index: bool = True) -> Look:
    """What a relay would find if it opened `data` now. `DataDirUnusable` if none ever did."""
    data.require()
    owner = owner_of(data)
    recovered = steadily(lambda: recover(data, 0, repair=False, use_index=use_index))
    recovered.index.close()
    settings, problem = directory_settings(data)
    damage = [
        f"journal: bytes {one.start:,} to {one.end:,} of segment {one.segment} are damaged"
        for one in recovered.report.damaged
        if not one.at_tail
    ]
    problems = [one for one in (problem, AccessFile(data).problem, *damage) if one]
    return Look(data, recovered.state, settings, owner, recovered.report, problems)


def steadily(read: Callable[[], T]) -> T:
    """Read again when something moved meanwhile.

    A running relay seals and drops segments, and folds its log into the index.
    """
    for _ in range(_ATTEMPTS - 1):
        try:
            return read()
        except (FileNotFoundError, sqlite3.DatabaseError):
            continue
    return read()


def directory_settings(data: DataDir, given: Settings | None = None) -> tuple[Settings, str]:
    """The settings a relay would start with here, and what is wrong with `config.json`.

    Without `given`, mailboxes are stored as they were by the last relay: files or no files is
    a property of the directory.
    """
    start = given or starting_settings(data)
    try:
        return merge_settings(start, data.config.read_bytes()), ""
    except FileNotFoundError:
        return start, ""
    except (OSError, InvalidSettings) as problem:
        return start, f"{data.config} is ignored: {problem}"


def starting_settings(data: DataDir) -> Settings:
    """The defaults, with mailboxes stored as the last relay in this directory did."""
    return Settings(storage="journal" if last_storage(data) == "journal" else "maildir")


def last_storage(data: DataDir) -> str:
    """The `storage` setting of whichever relay wrote here last; empty if the journal is silent.

    Reads backwards and stops at the first answer, which is usually in the newest segment.
    """
    return steadily(lambda: _last_storage(data))


def recent(data: DataDir, max_bytes: int) -> Recent:
    """Count what the newest `max_bytes` of the journal tell, in whole segments, at least one."""
    return steadily(lambda: _recent(data, max_bytes))


def _last_storage(data: DataDir) -> str:
    needle = b'{"kind":"settings"'
    for first_seq, path in reversed(list_segments(data.journal).items()):
        if needle not in segment_bytes(path):
            continue
        for piece in reversed(list(read_segment(path, first_seq))):
            if isinstance(piece, Batch) and needle in piece.data[piece.start : piece.stop]:
                found = [e for e, _ in piece.events() if isinstance(e, SettingsChanged)]
                if found:
                    return str(found[-1].settings.get("storage", ""))
    return ""


def _recent(data: DataDir, max_bytes: int) -> Recent:
    found = Recent()
    for first_seq, path in reversed(list_segments(data.journal).items()):
        first = True
        pieces = list(read_segment(path, first_seq))
        max_bytes -= max((piece.end for piece in pieces), default=0)
        if max_bytes < 0 and found.since_us:
            break
        for piece in pieces:
            if isinstance(piece, Damage):
                continue
            for event, _ in piece.events():
                if first:
                    found.since_us, first = event.at_us, False
                if isinstance(event, Rejected):
                    found.rejected[event.reason] += event.count
                else:
                    found.events[str(type(event).__struct_config__.tag)] += 1
    return found
