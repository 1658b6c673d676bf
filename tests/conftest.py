"""Settings of Hypothesis and Java for all tests, the selection of `--quick`, and the order."""

import gc
import os
import signal
import sys
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.markers import ProcessGuard, is_marked, mark_by_fixtures
from tests.open_files import OpenFiles
from tests.schedule import scheduled

# No deadline: a busy machine is slow, not wrong. Examples are random from run to run, so that
# every run looks somewhere new; the printed blob brings a failure back on another machine. A gate
# has to give the same answer for the same commit, so in CI they are always the same.
settings.register_profile(
    "waypost", deadline=None, derandomize=bool(os.environ.get("CI")), print_blob=True
)
settings.load_profile("waypost")

# Jobs in tests are too short for the optimizing compiler to pay off. The archive is written by
# `./run test`; a JVM that cannot use it ignores it.
CLASS_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"
JAVA_OPTIONS = [
    "-XX:TieredStopAtLevel=1",
    # Java has 48 MB for the code of this compiler alone, and compiles no more once they are full.
    "-XX:ReservedCodeCacheSize=240m",
    "-XX:+UseSerialGC",
    "-Xshare:auto",
]
if CLASS_ARCHIVE.exists():
    JAVA_OPTIONS += [f"-XX:SharedArchiveFile={CLASS_ARCHIVE}"]
    JAVA_OPTIONS += ["-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
os.environ.setdefault("JAVA_TOOL_OPTIONS", " ".join(JAVA_OPTIONS))

# A shell that starts the tests in the background lets them ignore interrupts, and so would every
# program that a test starts and stops with one.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

GUARD = ProcessGuard()
OPEN_FILES = OpenFiles()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--quick",
        action="store_true",
        help="run only tests that need no Spark, no browser and no other process",
    )


def pytest_collection_finish() -> None:
    # All tests and all that they import, which every full collection would walk through again.
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # duckdb complains at the exit about objects that Python does not collect


def pytest_configure(config: pytest.Config) -> None:
    patch = pytest.MonkeyPatch()
    GUARD.install(patch)
    config.add_cleanup(patch.undo)


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(
    config: pytest.Config, items: list[pytest.Item]
) -> Generator[None, None, None]:
    mark_by_fixtures(items)  # before `-m` selects by marker
    if config.getoption("--quick"):
        config.hook.pytest_deselected(items=[item for item in items if is_marked(item)])
        items[:] = [item for item in items if not is_marked(item)]
    yield
    if workers := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "0")):
        items[:] = scheduled(items, workers)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, bool | None, bool | None]:
    GUARD.is_armed = not is_marked(item)
    try:
        return (yield)
    finally:
        GUARD.is_armed = False


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_setup() -> Generator[None, None, None]:
    OPEN_FILES.begin()
    return (yield)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown() -> Generator[None, None, None]:
    yield
    OPEN_FILES.end()  # the fixtures and the event loop of the test are closed
