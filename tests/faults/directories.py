"""Directories that cannot be created, as on a disk without inodes."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


@contextmanager
def no_new_directories(
    number: int, matches: Callable[[str], bool] = lambda path: True
) -> Iterator[None]:
    """Fail each `os.mkdir` of a matching path within the block with this error number."""
    real = os.mkdir

    def mkdir(path: Any, *more: Any, **options: Any) -> None:
        if matches(os.fspath(path)):
            raise OSError(number, os.strerror(number), path)
        real(path, *more, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "mkdir", mkdir)
        yield
