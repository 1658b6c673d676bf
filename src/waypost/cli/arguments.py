"""What people type, as values: payloads and durations. Wrong input is a usage error (exit 2)."""

import re
import sys
from datetime import timedelta
from pathlib import Path

import typer

_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def read_payload(argument: str) -> object:
    """A payload from an argument: JSON, `-` for stdin, `@FILE` for a file, or any other text.

    JSON is passed on as it stands. Text that is not JSON becomes a JSON string; from stdin or a
    file it loses one line break at its end.
    """
    import msgspec

    text = _text_of(argument)
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        whole = argument not in ("-",) and not argument.startswith("@")
        return text if whole else text.removesuffix("\n").removesuffix("\r")
    except RecursionError:
        raise typer.BadParameter("the payload is nested too deeply") from None
    return msgspec.Raw(text.encode())


def parse_duration(text: str) -> timedelta:
    """`45s`, `30m`, `12h`, `7d`, `2w`, or several together: `1d12h`."""
    parts = re.findall(r"(\d+)([smhdw])", text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise typer.BadParameter(f"{text!r} is not a duration: write 45s, 30m, 12h, 7d or 2w")
    try:
        return sum((timedelta(**{_UNITS[unit]: int(n)}) for n, unit in parts), timedelta())
    except OverflowError:
        raise typer.BadParameter(f"{text!r} is longer than anything can be old") from None


def _text_of(argument: str) -> str:
    try:
        if argument == "-":
            return sys.stdin.buffer.read().decode()
        if argument.startswith("@"):
            return Path(argument[1:]).read_bytes().decode()
    except OSError as problem:
        raise typer.BadParameter(f"cannot read {argument[1:]}: {problem.strerror}") from None
    except UnicodeDecodeError:
        raise typer.BadParameter("the payload is not UTF-8 text: send it as base64") from None
    return argument
