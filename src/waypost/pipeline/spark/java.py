"""The Java of this machine: where it is, and whether Spark runs on it."""

import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from waypost.pipeline.errors import SparkUnavailable

JAVA_MIN = 17
_JAVA_ADVICE = (
    "install one with `apt-get install openjdk-17-jre-headless` (Debian), `brew install"
    " openjdk@17` (macOS) or `pip install install-jdk && python -c 'import jdk;"
    ' print(jdk.install("17", jre=True))\'`, and set JAVA_HOME if it is not found'
)


def require_java(environment: Mapping[str, str]) -> Path:
    """Return the `java` that Spark will start. Raises `SparkUnavailable` if older than 17."""
    java = _find_java(environment)
    if java is None:
        raise SparkUnavailable(
            f"no Java found: Spark needs Java {JAVA_MIN} or newer; {_JAVA_ADVICE}"
        )
    version = _java_version(java)
    if version < JAVA_MIN:
        found = f"Java {version}" if version else "not a working Java"
        raise SparkUnavailable(
            f"{java} is {found}: Spark needs Java {JAVA_MIN} or newer; {_JAVA_ADVICE}"
        )
    return java


def _find_java(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return java if java.is_file() else None
    found = shutil.which("java", path=environment.get("PATH"))
    return Path(found) if found else None


def _java_version(java: Path) -> int:
    """Return the major version: 8 for "1.8.0", 17 for "17.0.15", 0 if unknown."""
    try:
        result = subprocess.run(
            [java, "-version"], capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    match = re.search(r'version "(?:1\.)?(\d+)', result.stderr + result.stdout)
    return int(match.group(1)) if match else 0
