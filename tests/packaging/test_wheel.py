"""Contents and requirements of the wheel and the source archive."""

import re
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.packaging.distribution import ROOT, Distribution

SOURCE = ROOT / "src"
KINDS_OF_DATA = {".sql", ".css", ".html", ".properties", ".typed"}
NOT_SHIPPED = {"__pycache__", ".DS_Store"}
EXTRAS = {
    "": {"msgspec", "watchfiles"},
    "cli": {"typer", "rich", "httpx"},
    "client": {"websockets", "cryptography"},
    "server": {"uvicorn", "starlette", "uvloop", "httptools", "prometheus-client"},
    "mcp": {"mcp", "uvicorn"},
    "spark": {"pyspark", "pyarrow", "pandas", "numpy"},
    "lake": {"deltalake", "pyspark", "pyarrow"},
    "cluster": {"nats-py", "uvicorn", "starlette"},
}


def sources() -> Iterator[Path]:
    for path in SOURCE.rglob("*"):
        if path.is_file() and not NOT_SHIPPED & set(path.parts):
            yield path.relative_to(SOURCE)


def test_the_wheel_holds_every_file_of_the_source(distribution: Distribution) -> None:
    wanted = {path.as_posix() for path in sources()}
    assert wanted
    assert wanted - distribution.files == set()


@pytest.mark.parametrize("kind", sorted(KINDS_OF_DATA))
def test_the_wheel_holds_data_of_every_kind(distribution: Distribution, kind: str) -> None:
    assert [name for name in distribution.files if name.endswith(kind)]


def test_the_wheel_holds_nothing_else(distribution: Distribution) -> None:
    ours = {path.as_posix() for path in sources()}
    others = {name for name in distribution.files - ours if ".dist-info/" not in name}
    assert others == set()
    assert any(name.endswith("/LICENSE") for name in distribution.files)


def test_the_source_archive_holds_the_source(distribution: Distribution) -> None:
    with tarfile.open(distribution.archive) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {f"src/{path.as_posix()}" for path in sources()} - names == set()
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names


def asked_for(distribution: Distribution, extra: str) -> set[str]:
    """Return the packages that an extra requires, including those of extras it refers to."""
    wanted = set()
    for line in distribution.metadata.get_all("Requires-Dist") or []:
        requirement, _, marker = line.partition(";")
        condition = re.search(r"extra == '(\w+)'", marker)
        if (condition[1] if condition else "") != extra:
            continue
        found = re.match(r"([\w.-]+)(?:\[([\w,-]+)\])?", requirement)
        assert found is not None
        if found[1] == "waypost":
            for other in found[2].split(","):
                wanted |= asked_for(distribution, other)
        else:
            wanted.add(found[1])
    return wanted


@pytest.mark.parametrize("extra", EXTRAS)
def test_an_extra_requires_its_packages(distribution: Distribution, extra: str) -> None:
    assert EXTRAS[extra] <= asked_for(distribution, extra)


@pytest.mark.parametrize("extra", ["server", "mcp", "spark", "lake", "cluster"])
def test_extras_with_commands_include_the_command_line(
    distribution: Distribution, extra: str
) -> None:
    assert EXTRAS["cli"] <= asked_for(distribution, extra)


def test_the_extra_all_includes_every_extra(distribution: Distribution) -> None:
    extras = set(distribution.metadata.get_all("Provides-Extra") or []) - {"all"}
    assert extras == set(EXTRAS) - {""}
    everything = set().union(*(asked_for(distribution, extra) for extra in extras))
    assert asked_for(distribution, "all") == everything


def test_the_library_alone_requires_two_packages(distribution: Distribution) -> None:
    assert asked_for(distribution, "") == EXTRAS[""]
