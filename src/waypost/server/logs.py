"""Logs of a served relay: one JSON object per line, or plain text on a terminal.

Fields given as `extra` are added to `time`, `level`, `logger` and `message`. No content of a
message can start a new line. Of one kind of line, `REPEATS_MAX` are written in a minute: what a
client can repeat does not fill the disk.
"""

import logging
import sys
from collections import Counter
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from waypost.wire.printable import printable

_STANDARD = {
    *vars(logging.makeLogRecord({})),
    "message",
    "asctime",
    "color_message",
    "taskName",
}


MINUTE_S = 60.0
REPEATS_MAX = 10
"""Lines of one kind in a minute; the rest is counted."""
KINDS_MAX = 500
_Kind = tuple[str, int, str]
_OTHER: _Kind = ("", 0, "")


class JsonLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as JSON; values that JSON cannot represent appear as their `repr`."""
        fields: dict[str, Any] = {
            "time": _instant(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **_extra(record),
        }
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return _encode(fields)


class PlainLines(logging.Formatter):
    """Time, level, message and extra fields."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the record as one line; the traceback of an exception follows."""
        extra = "".join(f" {name}={value}" for name, value in _extra(record).items())
        text = printable(record.getMessage() + extra)
        line = f"{_instant(record)} {record.levelname.lower():7} {text}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class BoundedHandler(logging.StreamHandler[TextIO]):
    """Writes `REPEATS_MAX` lines of a kind in a minute, and later how many more there were.

    Lines are of one kind if logger, level and text are equal, apart from values in the text. The
    number of omitted lines is written before the next line that is logged after the minute.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._began = 0.0
        self._counts: Counter[_Kind] = Counter()
        self._omitted: dict[_Kind, logging.LogRecord] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record, or count it."""
        if record.created - self._began >= MINUTE_S or record.created < self._began:
            self._begin_minute(record.created)
        kind = (record.name, record.levelno, str(record.msg))
        if kind not in self._counts and len(self._counts) >= KINDS_MAX:
            kind = _OTHER
        self._counts[kind] += 1
        if self._counts[kind] <= REPEATS_MAX:
            super().emit(record)
        else:
            self._omitted[kind] = record

    def _begin_minute(self, now: float) -> None:
        counts, omitted = self._counts, self._omitted
        self._began, self._counts, self._omitted = now, Counter(), {}
        for kind, last in omitted.items():
            more = counts[kind] - REPEATS_MAX
            fields = {"name": last.name, "levelno": last.levelno, "levelname": last.levelname}
            text = {"msg": "%d more lines like this: %s", "args": (more, last.getMessage())}
            super().emit(logging.makeLogRecord({**fields, **text}))


def configure_logs(level: str = "info", stream: TextIO | None = None, form: str = "auto") -> None:
    """Log from `level` on to `stream` (stderr); `form` is "json", "text" or "auto".

    "auto" is text on a terminal, else JSON. Requests are counted in the metrics, not logged;
    libraries log warnings only.
    """
    stream = stream or sys.stderr
    if form == "auto":
        form = "text" if stream.isatty() else "json"
    handler = BoundedHandler(stream)
    handler.setFormatter(PlainLines() if form == "text" else JsonLines())
    logging.basicConfig(handlers=[handler], level=level.upper(), force=True)
    logging.getLogger("uvicorn.access").disabled = True
    for chatty in ("uvicorn", "watchfiles"):
        logging.getLogger(chatty).setLevel(logging.WARNING)


def _instant(record: logging.LogRecord) -> str:
    at = datetime.fromtimestamp(record.created, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _extra(record: logging.LogRecord) -> dict[str, Any]:
    return {name: value for name, value in vars(record).items() if name not in _STANDARD}


def _encode(fields: dict[str, Any]) -> str:
    try:
        return msgspec.json.encode(fields, enc_hook=repr).decode()
    except (TypeError, ValueError, OverflowError, RecursionError):
        plain = {
            name: str(value).encode(errors="backslashreplace").decode()
            for name, value in fields.items()
        }
        return msgspec.json.encode(plain).decode()
