"""Log lines as JSON and as plain text."""

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from waypost.server.logs import (
    KINDS_MAX,
    REPEATS_MAX,
    BoundedHandler,
    JsonLines,
    PlainLines,
    configure_logs,
)


def record(message: str = "hello %s", *args: object, **extra: Any) -> logging.LogRecord:
    made = logging.LogRecord("waypost.x", logging.WARNING, "f.py", 1, message, args, None)
    made.created = 1_700_000_000.25
    vars(made).update(extra)
    return made


@pytest.fixture
def _logging_as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    before = (root.handlers[:], root.level)
    yield
    root.handlers[:], level = before
    root.setLevel(level)
    logging.getLogger("uvicorn.access").disabled = False


def test_a_line_is_one_json_object_with_its_extra_fields() -> None:
    line = JsonLines().format(record("hello %s", "there", subject="agent.a", count=3))
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "warning",
        "logger": "waypost.x",
        "message": "hello there",
        "subject": "agent.a",
        "count": 3,
    }


@pytest.mark.parametrize("formatter", [JsonLines(), PlainLines()])
def test_no_message_starts_a_new_line(formatter: logging.Formatter) -> None:
    assert "\n" not in formatter.format(record("a\n2023 error forged"))


@pytest.mark.parametrize("odd", [object(), {1: 2}, b"\xff", "\udcff", 1 << 100])
def test_values_that_json_cannot_represent_are_logged(odd: object) -> None:
    assert json.loads(JsonLines().format(record("odd", value=odd)))["message"] == "odd"


def test_an_exception_is_part_of_the_object() -> None:
    try:
        raise ValueError("what went wrong")
    except ValueError as problem:
        made = record("failed")
        made.exc_info = (type(problem), problem, problem.__traceback__)
    assert "what went wrong" in json.loads(JsonLines().format(made))["exception"]


def test_a_terminal_gets_plain_text() -> None:
    line = PlainLines().format(record("hello", subject="agent.a"))
    assert line == "2023-11-14T22:13:20.250Z warning hello subject=agent.a"


@pytest.mark.usefixtures("_logging_as_it_was")
@pytest.mark.parametrize(("terminal", "first"), [(False, "{"), (True, "2")])
def test_the_format_depends_on_the_stream(terminal: bool, first: str) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    configure_logs("warning", stream)
    logging.getLogger("waypost.relay").info("too quiet")
    logging.getLogger("waypost.relay").warning("heard")
    logging.getLogger("uvicorn.access").warning("GET /")
    [line] = stream.getvalue().splitlines()
    assert line.startswith(first)
    assert "heard" in line


def lines_of(stream: io.StringIO) -> list[str]:
    return [json.loads(line)["message"] for line in stream.getvalue().splitlines()]


def test_equal_lines_are_bounded_in_a_minute_and_counted() -> None:
    stream = io.StringIO()
    handler = BoundedHandler(stream)
    handler.setFormatter(JsonLines())
    for number in range(100):
        handler.handle(record("bad frame of %s", number))
        if number % 50 == 0:
            handler.handle(record("another"))
    expected = ["bad frame of 0", "another", *(f"bad frame of {number}" for number in range(1, 10))]
    assert lines_of(stream) == [*expected, "another"]
    later = record("bad frame of %s", "later")
    later.created += 61
    handler.handle(later)
    assert lines_of(stream)[-2:] == [
        "90 more lines like this: bad frame of 99",
        "bad frame of later",
    ]


def test_texts_that_are_all_different_are_bounded_together() -> None:
    stream = io.StringIO()
    handler = BoundedHandler(stream)
    for number in range(5000):
        handler.handle(record(f"text {number}"))
    assert len(stream.getvalue().splitlines()) == KINDS_MAX + REPEATS_MAX
