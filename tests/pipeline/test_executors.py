"""Functions for executors that lack msgspec."""

import io
import pickle
from collections.abc import Iterator
from typing import Any

from waypost.pipeline.spark import executors
from waypost.pipeline.spark.executors import ShippedFunction


def multiply(rows: Iterator[int], factor: int) -> Iterator[int]:
    for row in rows:
        yield row * factor


class ModuleRecorder(pickle.Unpickler):
    """Records the modules that unpickling imports."""

    def __init__(self, pickled: bytes) -> None:
        super().__init__(io.BytesIO(pickled))
        self.modules: set[str] = set()

    def find_class(self, module: str, name: str) -> Any:
        self.modules.add(module)
        return super().find_class(module, name)


def test_a_shipped_function_is_imported_when_called_and_not_when_unpickled() -> None:
    unpickler = ModuleRecorder(pickle.dumps(ShippedFunction(multiply, factor=3)))
    function = unpickler.load()
    assert unpickler.modules == {executors.__name__}
    assert list(function(iter([1, 2]))) == [3, 6]
