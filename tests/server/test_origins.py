"""The names of a relay: given by its operator, or derived from its socket and certificate."""

import socket
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.certificates import write_certificate
from waypost.policy.errors import InvalidInput
from waypost.server.origins import Origin, Origins, own_origins, parse_origin
from waypost.server.server import Listen

LOOPBACK = ("127.0.0.1", 7171)


@pytest.mark.parametrize(
    ("text", "origin", "schemes"),
    [
        ("relay.example", "relay.example:7171", ("http",)),
        ("relay.example:8080", "relay.example:8080", ("http",)),
        ("http://relay.example", "relay.example:80", ("http",)),
        ("https://Relay.Example/", "relay.example:443", ("https",)),
        ("wss://relay.example:8443", "relay.example:8443", ("https",)),
        ("127.0.0.1", "127.0.0.1:7171", ("http",)),
        ("[::1]", "[::1]:7171", ("http",)),
        ("https://[2001:DB8:0::1]", "[2001:db8::1]:443", ("https",)),
    ],
)
def test_a_name_is_a_url_or_a_host(text: str, origin: str, schemes: tuple[str, ...]) -> None:
    parsed = parse_origin(text, 7171, ("http",))
    assert (str(parsed), parsed.schemes) == (origin, schemes)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "*.example",
        "ftp://x",
        "x:0",
        "x:65536",
        "x/path",
        "a b",
        "::1",
        "[::g]",
        "u@x",
        "ü",
    ],
)
def test_anything_else_is_no_name(text: str) -> None:
    with pytest.raises(InvalidInput, match="--origin takes the URL of the relay, or HOST:PORT"):
        Listen(origins=(text,))


@pytest.mark.parametrize(
    ("address", "names"),
    [
        (LOOPBACK, ["127.0.0.1:7171", "localhost:7171"]),
        (("::1", 7171), ["[::1]:7171", "localhost:7171"]),
        (("127.0.0.9", 80), ["127.0.0.9:80"]),
        (("192.0.2.1", 7171), ["192.0.2.1:7171", "box:7171"]),
        (("0.0.0.0", 7171), ["box:7171"]),
        (("::", 7171), ["box:7171"]),
    ],
)
def test_the_defaults_follow_from_the_listening_address(
    address: tuple[str, int], names: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: "Box")
    assert [str(one) for one in own_origins(address).own] == names


@pytest.mark.parametrize("name", ["", "a name", "box\n", "bücher"])
def test_a_host_name_that_no_url_can_hold_is_no_default(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    assert [one.host for one in own_origins(("192.0.2.1", 7171)).own] == ["192.0.2.1"]


def test_given_names_replace_the_defaults() -> None:
    origins = own_origins(("0.0.0.0", 7171), ["https://relay.example"])
    assert str(origins) == "relay.example:443"
    assert origins.of_host(b"127.0.0.1:7171", LOOPBACK) == ()


def test_names_of_the_certificate_are_names_of_the_relay(tmp_path: Path) -> None:
    certificate = tmp_path / "cert.pem"
    write_certificate(certificate, tmp_path / "key.pem", names=("Relay.example", "*.example"))
    origins = own_origins(LOOPBACK, certificate=certificate)
    assert str(origins) == "127.0.0.1:7171, localhost:7171, relay.example:7171"
    assert origins.is_own_page(b"https://relay.example:7171", LOOPBACK)
    assert not origins.is_own_page(b"http://relay.example:7171", LOOPBACK)


@pytest.mark.parametrize(
    ("host", "meant"),
    [
        (b"relay.example", ("relay.example:443",)),
        (b"RELAY.example:443", ("relay.example:443",)),
        (b"relay.example:80", ()),
        (b"both.example", ("both.example:80", "both.example:443")),
        (b"both.example:80", ("both.example:80",)),
        (b"odd.example", ()),
        (b"odd.example:8080", ("odd.example:8080",)),
        (b"relay.example.", ()),
        (b"evil.example", ()),
        (b" relay.example", ()),
        (b"", ()),
    ],
)
def test_a_host_header_means_names_of_the_relay_or_nothing(
    host: bytes, meant: tuple[str, ...]
) -> None:
    given = ("https://relay.example", "http://both.example", "https://both.example")
    origins = own_origins(LOOPBACK, (*given, "odd.example:8080", "https://odd.example:8080"))
    assert origins.of_host(host, LOOPBACK) == meant


@given(st.binary())
def test_no_other_header_means_anything(header: bytes) -> None:
    origins = own_origins(LOOPBACK)
    known = {b"127.0.0.1:7171", b"localhost:7171"}
    assert bool(origins.of_host(header, LOOPBACK)) == (header.lower() in known)
    assert not origins.is_own_page(header, LOOPBACK)


def test_on_all_addresses_the_one_a_connection_arrived_at_is_a_name() -> None:
    origins = own_origins(("::", 7171))
    assert origins.of_host(b"192.0.2.7:7171", ("192.0.2.7", 7171)) == ("192.0.2.7:7171",)
    assert origins.of_host(b"192.0.2.7:7171", ("::ffff:192.0.2.7", 7171)) == ("192.0.2.7:7171",)
    assert origins.of_host(b"[fe80::1]:7171", ("fe80::1%eth0", 7171)) == ("[fe80::1]:7171",)
    assert origins.of_host(b"192.0.2.8:7171", ("192.0.2.7", 7171)) == ()
    assert origins.of_host(b"192.0.2.7:7171", None) == ()
    assert origins.of_host(b"[::1]:7171", ("::1", 7171)) == ("[::1]:7171",)
    assert origins.of_host(b"localhost:7171", ("::ffff:127.0.0.1", 7171)) == ("localhost:7171",)
    assert origins.is_own_page(b"http://192.0.2.7:7171", ("192.0.2.7", 7171))
    assert not origins.is_own_page(b"http://192.0.2.8:7171", ("192.0.2.7", 7171))


def test_on_one_address_no_other_is_a_name() -> None:
    assert own_origins(LOOPBACK).of_host(b"192.0.2.7:7171", ("192.0.2.7", 7171)) == ()


@pytest.mark.parametrize(
    ("page", "is_own"),
    [
        (b"https://relay.example", True),
        (b"https://relay.example:443", True),
        (b"http://relay.example", False),
        (b"http://relay.example:443", False),
        (b"http://127.0.0.1:7171", True),
        (b"http://127.0.0.1:3000", False),
        (b"http://127.0.0.1", False),
        (b"https://evil.example", False),
        (b"https://relay.example.evil.example", False),
        (b"null", False),
        (b"", False),
    ],
)
def test_a_page_of_another_origin_is_foreign(page: bytes, is_own: bool) -> None:
    origins = Origins([parse_origin("https://relay.example", 1), Origin("127.0.0.1", 7171)])
    assert origins.is_own_page(page, LOOPBACK) == is_own


@pytest.mark.parametrize("host", [b"127.0.0.1:7171", b"localhost:7171", b"[::1]:7171"])
def test_names_of_every_machine_are_no_names_for_other_machines(host: bytes) -> None:
    assert own_origins(("::", 7171)).of_host(host, ("192.0.2.7", 7171)) == ()
