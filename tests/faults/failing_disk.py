"""A disk that fails every change: each call that the relay writes with raises EIO."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import pytest

_CHANGES = ("fdatasync", "fsync", "ftruncate", "pwrite", "rename", "replace", "rmdir", "unlink")


def _fail(*_: object, **__: object) -> NoReturn:
    raise OSError(errno.EIO, os.strerror(errno.EIO))


@contextmanager
def failing_disk() -> Iterator[None]:
    """Fail every change to a file within the block."""
    with pytest.MonkeyPatch.context() as patch:
        for name in _CHANGES:
            patch.setattr(os, name, _fail)
        yield
