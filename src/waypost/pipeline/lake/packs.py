"""Which files of a table are rewritten together, and where they are cut. Pure: no files, no Spark.

A pack is a directory that one write made: files that are replaced together and removed together.
A file covers a range of days, and no reader depends on how days are spread over files; they are
only read and written sooner if ranges are narrow, and files few and large.

Rule 1  A rewrite takes whole packs: those with a day that changes, and all small ones once their
        files have become many.
Rule 2  Packs of more than twice the wanted size are cut at days when they are rewritten, so that
        the next change of a day rewrites only a part of them.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from waypost.pipeline.lake.manifest import DataFile, Manifest

_SMALL_SHARE = 4
"""A pack is small if it has less than this part of the wanted size, in however many files."""


class Upkeep(msgspec.Struct, frozen=True, kw_only=True):
    """How large the files of a lake become, and how long replaced ones stay for readers.

    A replaced pack is removed `keep_versions` versions and `keep_s` seconds after it was replaced.
    What no version lists is removed `leftover_s` seconds after it was written: its writer may
    still commit, on top of later versions, so this is longer than any job.
    """

    pack_bytes: int = 32 * 1024 * 1024
    small_files_max: int = 16
    keep_versions: int = 3
    keep_s: float = 600.0
    leftover_s: float = 24 * 3600.0
    sweep_every: int = 16
    """Versions between searches for leftovers of jobs that died."""


def files_with(files: Iterable[DataFile], days: Sequence[str]) -> list[DataFile]:
    """Return the files whose range has one of `days`, which are in order."""
    return [one for one in files if _has_day(one, days)]


def days_within(files: Iterable[DataFile], days: Sequence[str]) -> list[str]:
    """Return those of `days`, which are in order, that are in the range of a file."""
    found: set[str] = set()
    for first, last in {(one.first_day, one.last_day) for one in files}:
        found.update(days[bisect_left(days, first) : bisect_right(days, last)])
    return [day for day in days if day in found]


def files_to_rewrite(
    files: Iterable[DataFile], changed: Sequence[str], upkeep: Upkeep
) -> list[DataFile]:
    """Return the files of the packs that a change of the days `changed` rewrites."""
    packs = _packs(files)
    touched = {name for name, pack in packs.items() if files_with(pack, changed)}
    small = small_packs({name: packs[name] for name in packs.keys() - touched}, upkeep)
    return [one for name in packs if name in touched | small for one in packs[name]]


def files_to_merge(files: Iterable[DataFile], upkeep: Upkeep) -> list[DataFile]:
    """Return the files of all small packs if they are many, else none."""
    packs = _packs(files)
    small = small_packs(packs, upkeep)
    return [one for name in packs if name in small for one in packs[name]]


def small_packs(packs: Mapping[str, list[DataFile]], upkeep: Upkeep) -> set[str]:
    """Return the names of the small packs if their files are many, else none."""
    small = {
        name
        for name, files in packs.items()
        if total_bytes(files) * _SMALL_SHARE < upkeep.pack_bytes
    }
    return small if sum(len(packs[name]) for name in small) > upkeep.small_files_max else set()


def first_days_of_packs(rows_by_day: Mapping[str, int], packs: int) -> list[str]:
    """Return where to cut days into at most `packs` packs of similar size: first days but one."""
    wanted = sum(rows_by_day.values()) / packs
    cuts, rows = [], 0
    for day in sorted(rows_by_day):
        if rows and rows + rows_by_day[day] / 2 > wanted:
            cuts.append(day)
            rows = 0
        rows += rows_by_day[day]
    return cuts


def total_bytes(files: Iterable[DataFile]) -> int:
    """Return the size of files."""
    return sum(one.bytes for one in files)


def writes_in_use(manifest: Manifest) -> set[str]:
    """Return the directories of writes, below the lake's, that a manifest lists or has retired."""
    listed = {f"{table}/{one.pack}" for table, files in manifest.tables.items() for one in files}
    listed |= {one.directory for one in manifest.retired}
    return {"/".join(directory.split("/")[:2]) for directory in listed}


def _packs(files: Iterable[DataFile]) -> dict[str, list[DataFile]]:
    packs: dict[str, list[DataFile]] = {}
    for one in files:
        packs.setdefault(one.pack, []).append(one)
    return packs


def _has_day(file: DataFile, days: Sequence[str]) -> bool:
    at = bisect_left(days, file.first_day)
    return at < len(days) and days[at] <= file.last_day
