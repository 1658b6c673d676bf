"""A look at an agent's messages for `waypost hook`, and what it has shown in which session.

The memory is a small file. Losing it costs a message shown twice, so a damaged file counts as
empty, and one that cannot be written is ignored. The newest sessions, and their newest messages,
are kept.
"""

import os
from contextlib import closing, suppress
from pathlib import Path

import msgspec

from waypost.cli.remote.responses import PeekResponse
from waypost.client.http import HttpClient, path_segment
from waypost.client.identity import Identity
from waypost.files import read_file
from waypost.relay.data_dir import replace_file

SESSIONS_MAX = 16
SHOWN_MAX = 500
FILE_MAX_BYTES = 4 * 1024 * 1024


def peek(url: str, identity: Identity, limit: int, max_size_bytes: int) -> PeekResponse:
    """Return the oldest pending messages of an agent, as that agent. Raises `RemoteError`."""
    path = f"/v1/inbox/{path_segment(identity.subject)}/peek"
    with closing(HttpClient(url)) as api:
        token = api.log_in(identity)
        asked = {"limit": limit, "max_size_bytes": max_size_bytes}
        return api.get(path, PeekResponse, token=token, **asked)


class Session(msgspec.Struct, omit_defaults=True):
    """Ids of the messages that a session has been shown, and how many were leased then.

    `unlisted` is how many were pending and not looked at, because of their size or number.
    """

    shown: list[str] = []
    leased: int = 0
    unlisted: int = 0


class HookMemory:
    """The memory of one agent: the file `SUBJECT.hook` in the user's cache."""

    def __init__(self, subject: str) -> None:
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        self._file = Path(cache) / "waypost" / f"{subject}.hook"
        self._sessions = self._load()

    def session(self, session_id: str) -> Session:
        """Return what is known of a session."""
        return self._sessions.get(session_id, Session())

    def save(self, session_id: str, session: Session) -> None:
        """Keep what is known of a session, as the newest."""
        self._sessions.pop(session_id, None)
        session.shown = session.shown[-SHOWN_MAX:]
        self._sessions[session_id] = session
        kept = dict(list(self._sessions.items())[-SESSIONS_MAX:])
        with suppress(OSError):
            self._file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self._file, msgspec.json.encode(kept))

    def _load(self) -> dict[str, Session]:
        try:
            content = read_file(self._file, FILE_MAX_BYTES)
            return msgspec.json.decode(content, type=dict[str, Session])
        except (OSError, msgspec.DecodeError):
            return {}
