"""The files of a lake's manifest: one in each of two slots, of which the newer version counts.

Where the lake is on this machine, they are read and written without Spark, which takes a
millisecond instead of a query. A new one then appears whole, under a name of its version: of two
jobs that commit the same version at the same instant, one fails.
"""

import contextlib
import os
from pathlib import Path

import msgspec
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from waypost.files import open_regular
from waypost.pipeline.errors import LakeUnusable
from waypost.pipeline.files import create_file, local_path, make_directory, sees_path
from waypost.pipeline.lake.manifest import Manifest, encode_manifest
from waypost.pipeline.spark.failures import PATH_ERRORS, cause, has_vanished, is_missing

_READ_ATTEMPTS = 5
_INVALID = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class _Head(msgspec.Struct):
    """The fields that manifests of every format have."""

    format: int = 1
    version: int = 0


decode_head = msgspec.json.Decoder(_Head).decode


def newest_manifest(spark: SparkSession, lake: str) -> bytes | None:
    """Return the text of the newest manifest, of any format. Raises `LakeUnusable`."""
    read = _read_locally if sees_path(spark, lake) else _read_with_spark
    for attempts_left in reversed(range(_READ_ATTEMPTS)):
        try:
            texts = read(spark, lake)
            return max(texts, key=lambda text: decode_head(text).version, default=None)
        except (*PATH_ERRORS, OSError) as problem:
            vanished = isinstance(problem, FileNotFoundError) or has_vanished(problem)
            if vanished and attempts_left:  # a job has just replaced the older one
                continue
            raise LakeUnusable(f"cannot read the lake at {lake}: {cause(problem)}") from None
        except _INVALID as problem:
            raise LakeUnusable(f"invalid manifest in {lake}: {problem}") from None
    raise AssertionError("the last attempt returns or raises")


def write_manifest(spark: SparkSession, lake: str, manifest: Manifest) -> None:
    """Write a manifest to the slot of its version. Raises `LakeUnusable` if there is another."""
    slot = f"manifest/slot={manifest.version % 2}"
    text = encode_manifest(manifest)
    if sees_path(spark, lake):
        _write_locally(Path(local_path(lake), slot), manifest.version, text)
        return
    row = spark.range(0, 1, 1, 1).select(F.lit(text.decode()).alias("value"))
    row.write.mode("overwrite").text(f"{lake}/{slot}")


def _read_with_spark(spark: SparkSession, lake: str) -> list[bytes]:
    slots = f"{lake}/manifest/slot=*/part-*"
    try:
        rows = spark.read.text(slots, wholetext=True).collect()
    except PATH_ERRORS as problem:
        if is_missing(problem):
            return []
        raise
    return [row.value.encode() for row in rows]


def _read_locally(_spark: SparkSession, lake: str) -> list[bytes]:
    root = Path(local_path(lake), "manifest")
    if not root.exists():
        return []
    texts = []
    for slot in root.iterdir():
        if slot.name.startswith("slot="):
            for path in slot.iterdir():
                if path.name.startswith("part-"):
                    with open(open_regular(path), "rb") as file:
                        texts.append(file.read())
    return texts


def _write_locally(slot: Path, version: int, text: bytes) -> None:
    """Add a file, then remove those of the version before the last."""
    make_directory(slot)
    older = list(slot.iterdir())
    path = slot / f"part-{version:020}.json"
    unfinished = slot / f".{path.name}.{os.getpid()}"
    try:
        with create_file(unfinished) as file:
            file.write(text)
        os.link(unfinished, path)
    except FileExistsError:
        raise LakeUnusable(
            f"another job committed to {slot.parent.parent} first: nothing was changed, run this"
            " job again"
        ) from None
    finally:
        unfinished.unlink(missing_ok=True)
    for one in older:
        with contextlib.suppress(OSError):
            one.unlink()
