"""Origins derived from Host headers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from waypost.server.identity.challenges import possible_origins


@pytest.mark.parametrize(
    ("host", "origins"),
    [
        ("relay.example:7000", ["relay.example:7000"]),
        ("Relay.EXAMPLE:7000", ["relay.example:7000"]),
        ("relay.example", ["relay.example:80", "relay.example:443"]),
        ("127.0.0.1:8080", ["127.0.0.1:8080"]),
        ("[::1]:8080", ["[::1]:8080"]),
        ("[::1]", ["[::1]:80", "[::1]:443"]),
    ],
)
def test_a_host_header_means_one_origin_or_the_default_ports(host: str, origins: list[str]) -> None:
    assert possible_origins(host) == origins


@pytest.mark.parametrize(
    "host", ["", ":80", "::1", "a b:80", "a:b", "a:", "u@h:1", "h:1/x", "a\nb", "h:999999"]
)
def test_an_invalid_host_has_no_origin(host: str) -> None:
    assert possible_origins(host) == []


@given(st.text())
def test_an_origin_never_holds_a_line_break(host: str) -> None:
    assert not any("\n" in origin for origin in possible_origins(host))
