"""The wheel in a clean environment: what works with which extra, and the error without it."""

import json
import re
import signal
import urllib.request
from collections.abc import Callable

import pytest

from tests.packaging.distribution import ROOT, Installed

Install = Callable[[str], Installed]
PROGRAM = (ROOT / "examples" / "first_relay.py").read_text(encoding="utf-8")


def test_the_library_alone_is_a_relay(installed: Install) -> None:
    printed = installed("").python(PROGRAM)
    assert printed.strip()
    where = installed("").python("import waypost; print(waypost.__file__)")
    assert str(ROOT) not in where


@pytest.mark.parametrize(
    ("has", "arguments", "wanted"),
    [
        ("", (), "waypost[cli]"),
        ("", ("stats",), "waypost[cli]"),
        ("", ("serve",), "waypost[server]"),
        ("", ("pipeline", "run"), "waypost[spark]"),
        ("", ("mcp",), "waypost[mcp]"),
        ("client", ("stats",), "waypost[cli]"),
        ("cli", ("serve",), "waypost[server]"),
        ("cli", ("keys", "new", "agent.a"), "waypost[client]"),
        ("cli", ("listen", "agent.a"), "waypost[cli,client]"),
        ("cli", ("request", "agent.a", "1", "--sender", "agent.b"), "waypost[cli,client]"),
        ("cli", ("pipeline", "report", "--lake", "lake"), "waypost[spark]"),
        ("cli", ("mcp",), "waypost[mcp]"),
        ("server", ("pipeline", "report", "--lake", "lake"), "waypost[spark]"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else value,
)
def test_a_command_without_its_extra_names_the_package_to_install(
    installed: Install, has: str, arguments: tuple[str, ...], wanted: str
) -> None:
    done = installed(has).waypost(*arguments)
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.startswith("waypost: ")
    assert done.stderr.count("\n") == 1
    assert f"pip install '{wanted}'" in done.stderr.replace('"', "'")


def test_the_client_without_its_extra_names_the_package_to_install(installed: Install) -> None:
    program = (
        "try:\n    from waypost.client import connect\n"
        "except ImportError as problem:\n    print(problem)"
    )
    assert 'pip install "waypost[client]"' in installed("").python(program)


@pytest.mark.parametrize(
    ("extra", "modules"),
    [
        ("cli", ("typer", "rich", "httpx", "waypost.cli.app")),
        ("client", ("websockets", "cryptography", "waypost.client.aio", "waypost.client.blocking")),
        (
            "server",
            ("uvicorn", "uvloop", "starlette", "prometheus_client", "waypost.server.server"),
        ),
        ("mcp", ("mcp", "waypost.mcp", "waypost.cli.app", "waypost.client.aio")),
    ],
)
def test_an_extra_installs_its_modules(
    installed: Install, extra: str, modules: tuple[str, ...]
) -> None:
    installed(extra).python(f"import {', '.join(modules)}")


def test_spark_and_the_server_come_only_with_their_extras(installed: Install) -> None:
    assert not installed("client").has("uvicorn")
    assert not installed("server").has("pyspark")


def test_with_the_command_line_a_directory_can_be_used(installed: Install) -> None:
    waypost = installed("cli").waypost
    arguments = ("agent.a", "1", "--sender", "agent.b", "--register", "--id", "first")
    assert waypost("send", *arguments).returncode == 0
    assert json.loads(waypost("inbox", "agent.a", "--json").stdout)["messages"][0]["id"] == "first"


def test_with_the_server_a_relay_is_served(installed: Install) -> None:
    environment = installed("server")
    relay = environment.starts("serve", "--port", "0")
    try:
        assert relay.stdout is not None
        said = relay.stdout.readline()
        found = re.search(r"at (http://\S+)$", said)
        assert found is not None, said
        with urllib.request.urlopen(f"{found[1]}/healthz", timeout=60) as answer:
            assert json.load(answer) == {"status": "up"}
        sent = environment.waypost("send", "agent.a", "1", "--url", found[1])
        assert sent.returncode == 0, sent.stderr
        relay.send_signal(signal.SIGTERM)
        relay.communicate(timeout=60)
        assert relay.returncode == 0
    finally:
        relay.kill()
        relay.communicate()
