"""deploy/Dockerfile: checked without Docker, by running its steps."""

import json
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main

from tests.cli.serve_process import serving
from tests.packaging.distribution import ROOT, uv
from waypost.cli.app import app

DOCKERFILE = ROOT / "deploy" / "Dockerfile"
IGNORED = ROOT / "deploy" / "Dockerfile.dockerignore"


def instructions() -> list[tuple[str, str]]:
    """Yield each instruction with its arguments, without comments and line breaks."""
    text = re.sub(r"^#.*\n", "", DOCKERFILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    return [(line.split()[0], line.split(maxsplit=1)[1]) for line in lines if line.strip()]


def given(name: str) -> list[str]:
    return [arguments for instruction, arguments in instructions() if instruction == name]


def copied() -> list[str]:
    """Return the files copied from the repository."""
    copies = [one.split() for one in given("COPY") if not one.startswith("--from")]
    return [source for *sources, _ in copies for source in sources]


def build_commands() -> list[list[str]]:
    return [words for one in given("RUN") if (words := json.loads(one))[0] == "uv"]


def health_check() -> list[str]:
    [line] = given("HEALTHCHECK")
    words: list[str] = json.loads(line.partition("CMD ")[2])
    return words


def test_every_copied_file_exists_and_is_not_ignored() -> None:
    assert copied()
    allowed = {line[1:] for line in IGNORED.read_text().splitlines() if line.startswith("!")}
    assert [name for name in copied() if not (ROOT / name).exists()] == []
    assert set(copied()) == allowed


def test_its_commands_run_without_a_shell() -> None:
    for name in ("RUN", "ENTRYPOINT", "CMD", "VOLUME"):
        for arguments in given(name):
            assert isinstance(json.loads(arguments), list)


def test_it_builds_with_the_tool_that_the_checkout_uses() -> None:
    [version] = re.findall(r"^uv_version=(\S+)$", (ROOT / "run").read_text(), re.MULTILINE)
    assert f'"uv=={version}"' in DOCKERFILE.read_text()


@pytest.mark.process
def test_its_commands_create_an_environment_without_source(tmp_path: Path) -> None:
    place, environment = tmp_path / "build", tmp_path / "environment"
    place.mkdir()
    for name in copied():
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, place / name)
        else:
            shutil.copy(source, place / name)
    for command in build_commands():
        uv(*command[1:], "--project", place, UV_PROJECT_ENVIRONMENT=str(environment))
    shutil.rmtree(place)
    waypost = environment / "bin" / "waypost"
    done = subprocess.run([waypost, "serve", "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    imports = [environment / "bin" / "python", "-c", "import waypost.server.server"]
    assert subprocess.run(imports, check=False).returncode == 0


def test_it_runs_as_an_unprivileged_user_on_its_own_volume() -> None:
    assert given("USER") == ["10001:10001"]
    assert given("VOLUME") == ['["/data"]']
    names = [name for name, _ in instructions()]
    assert names.index("USER") > names.index("COPY")
    assert any("WAYPOST_DATA_DIR=/data" in one for one in given("ENV"))


def test_its_entry_point_is_an_existing_command() -> None:
    assert [json.loads(one) for one in given("ENTRYPOINT")] == [["waypost"]]
    [words] = [json.loads(one) for one in given("CMD")]
    serve = typer.main.get_command(app).commands[words[0]]  # type: ignore[attr-defined]
    parameters = serve.make_context("serve", words[1:]).params
    assert parameters["host"] == "0.0.0.0"
    assert given("EXPOSE") == [str(parameters["port"])]


@pytest.mark.process
def test_its_health_check_passes_only_for_a_relay(tmp_path: Path) -> None:
    program, *arguments = health_check()
    assert program == "python"
    [address] = re.findall(r"http://127\.0\.0\.1:\d+", shlex.join(arguments))

    def check(url: str) -> int:
        asked = [one.replace(address, url) for one in arguments]
        command = [sys.executable, *asked]
        return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode

    with serving(tmp_path) as relay:
        assert check(relay.url) == 0
    assert check(relay.url) != 0
