"""A test that leaves a socket open fails, and not the one after it."""

import socket
import sys
import warnings

import pytest

from tests.open_files import OpenFiles


def leave_open() -> None:
    """Open a socket that only a cycle refers to."""
    cycle: list[object] = [socket.socket()]
    cycle.append(cycle)


def test_a_socket_that_is_left_open_is_named() -> None:
    files, hook = OpenFiles(), sys.unraisablehook
    files.begin()
    leave_open()
    with pytest.raises(pytest.fail.Exception, match=r"left files or sockets open(.|\n)*socket"):
        files.end()
    files.end()  # it is closed now
    assert sys.unraisablehook is hook


def test_a_test_may_say_that_a_library_leaves_sockets_open() -> None:
    files = OpenFiles()
    files.begin()
    leave_open()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        files.end()
    files.end()


def test_what_a_fixture_of_several_tests_holds_is_not_left_open() -> None:
    files = OpenFiles()
    files.begin()
    with socket.socket():
        files.end()


def test_what_a_failed_test_holds_is_closed_before_the_next() -> None:
    def fail() -> None:
        held = socket.socket()
        raise AssertionError(held)

    files = OpenFiles()
    files.begin()
    try:
        fail()
    except AssertionError as failure:
        sys.last_value = failure
    files.begin()
    assert not hasattr(sys, "last_value")
    files.end()
