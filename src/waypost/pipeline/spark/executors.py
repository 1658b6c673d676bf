"""Ships Waypost and msgspec to the executors, so that any cluster can run a job.

`addArtifacts` works alike on a cluster and over Spark Connect. It sends two files: Waypost as a
zip of Python files, from which Python imports directly, and msgspec as an archive that Spark
unpacks, because compiled code cannot be imported from a zip. Code that runs on executors calls
`import_shipped()` first, which makes msgspec importable.

Executors must have PyArrow, and the driver's platform and minor version of Python.
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
def ship_packages(spark: Any) -> Iterator[None]:
    """Offer Waypost and msgspec to the executors of `spark` until the block ends."""
    with tempfile.TemporaryDirectory(prefix="waypost-ship-") as directory:
        package = _pack("waypost", Path(directory, "waypost_package.zip"), keep=".py")
        compiled = _pack("msgspec", Path(directory, f"{_ARCHIVE}.zip"))
        spark.addArtifacts(str(package), pyfile=True)
        spark.addArtifacts(f"{compiled}#{_ARCHIVE}", archive=True)
        yield


def import_shipped() -> None:
    """On an executor: make the shipped packages importable."""
    if importlib.util.find_spec("msgspec") is not None:
        return
    from pyspark import SparkFiles

    for root in (Path.cwd(), Path(SparkFiles.getRootDirectory())):
        if (root / _ARCHIVE).is_dir():
            sys.path.append(str(root / _ARCHIVE))
            return


class ShippedFunction:
    """A module-level generator function, called on executors after `import_shipped()`.

    Unpickling a function imports its module, which fails if that imports msgspec: nothing has
    made it importable by then. So the function travels by name.
    """

    def __init__(self, function: Callable[..., Iterator[Any]], **arguments: Any) -> None:
        self._module = function.__module__
        self._name = function.__name__
        self._arguments = arguments

    def __call__(self, rows: Iterator[Any]) -> Iterator[Any]:
        """Run the function on `rows`."""
        import_shipped()
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
