"""The Java of this machine: where it is, whether Spark runs on it, and its options.

Rule 1  The user's options take precedence, wherever Java reads them from.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from waypost.pipeline.errors import SparkUnavailable

JAVA_MIN = 17
JAVA_VARIABLES = ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS")
"""From which Java takes options."""

_JAVA_ADVICE = (
    "install one with `apt-get install openjdk-17-jre-headless` (Debian), `brew install"
    " openjdk@17` (macOS) or `pip install install-jdk && python -c 'import jdk;"
    ' print(jdk.install("17", jre=True))\'`, and set JAVA_HOME if it is not found'
)

QUICK_COMPILER_EVENTS_MAX = 4_000_000
"""Events up to which a job ends before optimising its code has paid off."""
QUICK_COMPILER_REPLAY_EVENTS_MAX = 10_000_000
"""The same for a backtest, which does less with each event."""

# Only the quick compiler, which took a third off the CPU time of a small job.
_QUICK_COMPILER = "-XX:TieredStopAtLevel=1"
# With that compiler alone, Java has room for 48 MB of code: two small runs in one session filled
# it, and Java compiled no more. This is its room with both compilers.
_CODE_ROOM = "-XX:ReservedCodeCacheSize=240m"
# Most code even of a large job ends before optimising it has paid off: the thresholds for the
# optimising compiler (tier 4) are 10 times the JVM's own.
_LATE_COMPILER = (
    "-XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000"
    " -XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
_VFORK_BEFORE = 22  # later ones warn about it
# What each of our options decides on, and the options.
_COMPILER = re.compile(r"-XX:[+-]?Tier\w+")
_ROOM = re.compile(r"-XX:ReservedCodeCacheSize=")
_COLLECTOR = re.compile(r"-XX:\+Use\w+GC\b")
_ARCHIVE = re.compile(r"-Xshare\b|-XX:(?:SharedArchiveFile|ArchiveClassesAtExit)=")
_FORKS = re.compile(r"-Djdk\.lang\.Process\.launchMechanism=")


class Java(msgspec.Struct, frozen=True, kw_only=True):
    """A Java, its major version (8 for "1.8.0", 17 for "17.0.15"), and what it calls itself."""

    path: Path
    version: int
    build: str


def java_options(java: Java, given: str, archive: Path | None, *, is_small: bool) -> list[str]:
    """Return options for a job that ends before optimising its code pays off, or a larger one.

    `given` are the user's options. What they decide on is left to them. `archive` is a class
    archive, which Java ignores without a word if it does not fit.
    """
    own = [
        (_COMPILER, _QUICK_COMPILER if is_small else _LATE_COMPILER),
        # Jobs need throughput, not short pauses. Java does not start with two collectors.
        (_COLLECTOR, "-XX:+UseParallelGC"),
    ]
    if is_small:
        own.append((_ROOM, _CODE_ROOM))
    if sys.platform == "linux" and java.version < _VFORK_BEFORE:
        # Spark runs `chmod` for every file it makes. The other ways to start a program cost more.
        own.append((_FORKS, "-Djdk.lang.Process.launchMechanism=VFORK"))
    if archive is not None:
        mapped = f'"-XX:SharedArchiveFile={archive}" -Xlog:cds=off -Xlog:cds+dynamic=off'
        own.append((_ARCHIVE, mapped))
    chosen = [options for decides, options in own if not decides.search(given)]
    return [*chosen, "-XX:-UsePerfData"]  # no file in /tmp/hsperfdata_USER that others can list


def decides_on_archive(given: str) -> bool:
    """Return whether the user's options say which class archive to use, if any."""
    return _ARCHIVE.search(given) is not None


def require_java(environment: Mapping[str, str]) -> Java:
    """Return the Java that Spark will start. Raises `SparkUnavailable` if older than 17."""
    path = _find_java(environment)
    if path is None:
        raise SparkUnavailable(
            f"no Java found: Spark needs Java {JAVA_MIN} or newer; {_JAVA_ADVICE}"
        )
    java = _ask(path, environment)
    if java.version < JAVA_MIN:
        found = f"Java {java.version}" if java.version else "not a working Java"
        raise SparkUnavailable(
            f"{path} is {found}: Spark needs Java {JAVA_MIN} or newer; {_JAVA_ADVICE}"
        )
    return java


def _find_java(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if java.is_file() else None
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None


def _ask(path: Path, environment: Mapping[str, str]) -> Java:
    """Return the Java at `path`; one that does not work has version 0."""
    # It would name the options that it takes from variables, and what they change.
    without = {name: value for name, value in environment.items() if name not in JAVA_VARIABLES}
    try:
        result = subprocess.run(
            [path, "-version"], capture_output=True, text=True, timeout=60, check=False, env=without
        )
    except (OSError, subprocess.TimeoutExpired):
        return Java(path=path, version=0, build="")
    build = result.stderr + result.stdout
    match = re.search(r'version "(?:1\.)?(\d+)', build)
    return Java(path=path, version=int(match.group(1)) if match else 0, build=build)
