"""The check of what a test reaches notices every way around the public ones."""

from pathlib import Path
from textwrap import dedent

import pytest

from tests.docs.ways_in import ROOT, WAYS_IN, reached_by


def reached(folder: Path, source: str) -> set[str]:
    """Return the inner names that `test_it` of a module with this source reaches."""
    module = folder / "test_sample.py"
    module.write_text(dedent(source))
    found = reached_by(module, "test_it")
    assert found.inner or found.public, "nothing is reached"
    return found.inner


@pytest.mark.parametrize(
    "source",
    [
        "from waypost import Relay\ndef test_it(): Relay('x')",
        "from waypost.client import connect\ndef test_it(): connect",
        "import waypost\ndef test_it(): waypost.Relay",
        "from waypost import client\ndef test_it(): client.connect",
        "from waypost.testing import ManualClock\ndef test_it(): ManualClock()",
        "from tests.cli.conftest import CommandLine\ndef test_it(): CommandLine('data')",
        "from waypost import Relay\nfrom waypost.policy import bounds\ndef test_it(): Relay",
    ],
    ids=[
        "name",
        "client",
        "attribute",
        "package",
        "test kit",
        "command line",
        "inner name not used",
    ],
)
def test_public_names_and_ways_in_are_no_way_around(tmp_path: Path, source: str) -> None:
    assert reached(tmp_path, source) == set()


@pytest.mark.parametrize(
    ("source", "inner"),
    [
        (
            "from waypost.policy.breakers import CircuitBreakers\ndef test_it(): CircuitBreakers()",
            "waypost.policy.breakers.CircuitBreakers",
        ),
        ("import waypost\ndef test_it(): waypost.policy", "waypost.policy"),
        ("from waypost import client\ndef test_it(): client.aio", "waypost.client.aio"),
        (
            "from waypost.policy import bounds\nN = bounds\ndef test_it(): N",
            "waypost.policy.bounds",
        ),
        ("def test_it():\n    from waypost.relay import runtime", "waypost.relay.runtime"),
        (
            "from waypost.wire import frames\ndef sent(): frames\ndef test_it(): sent()",
            "waypost.wire.frames",
        ),
        (
            "import pytest\nfrom waypost.relay import runtime\n@pytest.fixture\n"
            "def it(): return runtime\ndef test_it(it): ...",
            "waypost.relay.runtime",
        ),
        (
            "import pytest\nfrom waypost.relay import runtime\n@pytest.fixture\ndef it(): runtime\n"
            "@pytest.mark.usefixtures('it')\ndef test_it(): ...",
            "waypost.relay.runtime",
        ),
        (
            "import pytest\nfrom waypost.relay import runtime\n@pytest.fixture(autouse=True)\n"
            "def slow(): runtime\nfrom waypost import Relay\ndef test_it(): Relay",
            "waypost.relay.runtime",
        ),
        ("PROGRAM = 'from waypost.relay.relay import Relay'\ndef test_it(): PROGRAM", "Relay"),
        ("def test_it(patch): patch.setattr('waypost.relay.runtime.now', 1)", "waypost.relay"),
        ("def test_it(served): served.context.hub", ".context"),
        ("def test_it(relay): relay._runtime", "._runtime"),
        (
            "from tests.server.sessions.raw_agent import RawAgent\ndef test_it(): RawAgent",
            "waypost.wire.frames",
        ),
    ],
    ids=[
        "import",
        "attribute",
        "attribute of a package",
        "constant",
        "local import",
        "function",
        "fixture",
        "used fixture",
        "autouse fixture",
        "program",
        "patch",
        "inside",
        "private attribute",
        "other module",
    ],
)
def test_a_way_around_is_noticed(tmp_path: Path, source: str, inner: str) -> None:
    assert any(inner in one for one in reached(tmp_path, source))


def test_a_fixture_of_a_folder_above_is_followed(tmp_path: Path) -> None:
    fixture = """
        import pytest
        from waypost.relay import runtime

        @pytest.fixture
        def it(): return runtime
    """
    (tmp_path / "conftest.py").write_text(dedent(fixture))
    folder = tmp_path / "inner"
    folder.mkdir()
    assert reached(folder, "def test_it(it): ...") == {"waypost.relay.runtime"}


def test_every_way_in_exists() -> None:
    assert [path for path in WAYS_IN if not (ROOT / path).is_file()] == []
