"""What executors need of Waypost, sent along with the job, so that any cluster can run it.

Two files go out with `addArtifacts`, which works alike on a cluster and over Spark Connect:
Waypost itself as a zip of Python files, which Python imports from as it is, and msgspec as an
archive, which Spark unpacks, since compiled code cannot be imported from a zip. A replay begins
with `unpacked()`, which makes the latter importable.

Executors must have PyArrow, the same minor version of Python as the driver, and its platform.
"""

import contextlib
import importlib
import importlib.util
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ARCHIVE = "waypost_compiled"


@contextlib.contextmanager
def shipped(spark: Any) -> Iterator[None]:
    """Send Waypost and msgspec to the executors of `spark`, which may fetch them until the end."""
    with tempfile.TemporaryDirectory(prefix="waypost-ship-") as directory:
        package = _pack("waypost", Path(directory, "waypost_package.zip"), keep=".py")
        compiled = _pack("msgspec", Path(directory, f"{_ARCHIVE}.zip"))
        spark.addArtifacts(str(package), pyfile=True)
        spark.addArtifacts(f"{compiled}#{_ARCHIVE}", archive=True)
        yield


def unpacked() -> None:
    """On an executor: make what was sent importable."""
    if importlib.util.find_spec("msgspec") is not None:
        return
    from pyspark import SparkFiles

    for root in (Path.cwd(), Path(SparkFiles.getRootDirectory())):
        if (root / _ARCHIVE).is_dir():
            sys.path.append(str(root / _ARCHIVE))
            return


class ShippedFunction:
    """A module-level generator function, called on executors after `unpacked()`.

    Unpickling a function imports its module, which fails if that imports msgspec: nothing has
    made it importable by then. So the function travels by name.
    """

    def __init__(self, function: Callable[..., Iterator[Any]], **arguments: Any) -> None:
        self._module = function.__module__
        self._name = function.__name__
        self._arguments = arguments

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Run the function on `rows`."""
        unpacked()
        function = getattr(importlib.import_module(self._module), self._name)
        yield from function(rows, **self._arguments)


def _pack(package: str, target: Path, keep: str = "") -> Path:
    spec = importlib.util.find_spec(package)
    assert spec is not None
    assert spec.origin is not None
    root = Path(spec.origin).parent
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(root.rglob("*")):
            if path.is_file() and "__pycache__" not in path.parts and path.name.endswith(keep):
                archive.write(path, Path(package) / path.relative_to(root))
    return target
