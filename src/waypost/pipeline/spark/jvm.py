"""Which Java Spark will run on, and what to do when there is none."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from waypost.pipeline.errors import SparkUnavailable

OLDEST = 17
_ADVICE = (
    "install one with `apt-get install openjdk-17-jre-headless` (Debian), `brew install"
    " openjdk@17` (macOS) or `pip install install-jdk && python -c 'import jdk;"
    ' print(jdk.install("17", jre=True))\'`, and set JAVA_HOME if it is not found'
)


def require_java(environment: Mapping[str, str]) -> Path:
    """The `java` that Spark will start, at least version 17, or `SparkUnavailable`."""
    java = _find(environment)
    if java is None:
        raise SparkUnavailable(f"Spark needs Java {OLDEST} or newer and none was found: {_ADVICE}")
    version = _major_version(java)
    if version < OLDEST:
        found = f"Java {version}" if version else "not a working Java"
        raise SparkUnavailable(
            f"Spark needs Java {OLDEST} or newer and {java} is {found}: {_ADVICE}"
        )
    return java


def _find(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if java.is_file() else None
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None


def _major_version(java: Path) -> int:
    """8 for "1.8.0", 17 for "17.0.15"; 0 if it does not say."""
    try:
        told = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', told.stderr + told.stdout)
    return int(match.group(1)) if match else 0
