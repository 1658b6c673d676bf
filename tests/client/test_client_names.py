"""The names of `waypost.client`: loaded on first use, with a clear error for a missing library."""

import subprocess
import sys
from pathlib import Path

import pytest

import waypost.client
from waypost.client import errors

SOURCE = str(Path(waypost.__file__).parents[1])


def run(code: str) -> str:
    command = [sys.executable, "-c", f"import sys; sys.path.insert(0, {SOURCE!r}); {code}"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.parametrize("name", waypost.client.__all__)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(waypost.client, name) is not None


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Nonsense'"):
        _ = waypost.client.Nonsense


def test_every_error_is_public_and_drawn_in_the_tree() -> None:
    names = [
        name
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.ClientError)
    ]
    assert [name for name in names if name not in waypost.client.__all__] == []
    assert [name for name in names if f"── {name}" not in (errors.__doc__ or "")] == []


@pytest.mark.process
def test_neither_the_package_nor_its_values_load_what_connecting_needs() -> None:
    loaded = run(
        "import waypost.client as c; c.ClientOptions; c.MessagingGuard; c.Outgoing; c.ClientError;"
        " print([m for m in ('websockets', 'cryptography', 'waypost.relay') if m in sys.modules])"
    )
    assert loaded == "[]"


@pytest.mark.process
def test_connecting_loads_no_relay_and_no_server() -> None:
    loaded = run(
        "import waypost.client as c; c.connect; c.blocking; c.Identity;"
        " print([m for m in sys.modules if m.startswith(('waypost.relay', 'waypost.server'))])"
    )
    assert loaded == "[]"


@pytest.mark.process
@pytest.mark.parametrize("library", ["websockets", "cryptography"])
@pytest.mark.parametrize("name", ["connect", "blocking"])
def test_a_missing_library_is_named_with_the_command_to_install_it(library: str, name: str) -> None:
    said = run(
        f"sys.modules[{library!r}] = None\n"
        f"try:\n    from waypost.client import {name}\n"
        "except ImportError as problem:\n    print(type(problem).__name__, problem)"
    )
    assert said == (
        f"MissingExtra the client needs {library}, which is not installed:"
        ' pip install "waypost[client]"'
    )
