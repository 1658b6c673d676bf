"""Logs of a served relay: one JSON object per line, or plain text on a terminal.

Fields given as `extra` are added to `time`, `level`, `logger` and `message`. No content of a
message can start a new line.
"""

import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

_STANDARD = {
    *vars(logging.makeLogRecord({})),
    "message",
    "asctime",
    "color_message",
    "taskName",
}


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
        message = record.getMessage().replace("\n", "\\n")
        line = f"{_instant(record)} {record.levelname.lower():7} {message}{extra}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def configure_logs(level: str = "info", stream: TextIO | None = None, form: str = "auto") -> None:
    """Log from `level` on to `stream` (stderr); `form` is "json", "text" or "auto".

    "auto" is text on a terminal, else JSON. Requests are counted in the metrics, not logged;
    libraries log warnings only.
    """
    stream = stream or sys.stderr
    if form == "auto":
        form = "text" if stream.isatty() else "json"
    handler = logging.StreamHandler(stream)
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
