"""Addresses of relays."""

import pytest

from waypost.client.address import parse_address
from waypost.policy.errors import InvalidInput


@pytest.mark.parametrize(
    ("url", "uri", "origin"),
    [
        ("http://127.0.0.1:7171", "ws://127.0.0.1:7171/v1/connect", "127.0.0.1:7171"),
        ("http://127.0.0.1:7171/", "ws://127.0.0.1:7171/v1/connect", "127.0.0.1:7171"),
        ("https://Relay.Example", "wss://relay.example:443/v1/connect", "relay.example:443"),
        ("ws://relay.example", "ws://relay.example:80/v1/connect", "relay.example:80"),
        ("wss://relay.example:9", "wss://relay.example:9/v1/connect", "relay.example:9"),
        ("ws://h:1/v1/connect", "ws://h:1/v1/connect", "h:1"),
        ("https://h/mail/", "wss://h:443/mail/v1/connect", "h:443"),
        ("http://[::1]:7171", "ws://[::1]:7171/v1/connect", "[::1]:7171"),
    ],
)
def test_every_form_of_url_is_accepted(url: str, uri: str, origin: str) -> None:
    address = parse_address(url)
    assert (address.uri, address.origin) == (uri, origin)


@pytest.mark.parametrize(
    "url",
    [
        "",
        "relay.example",
        "127.0.0.1:7171",
        "ftp://relay.example",
        "http://",
        "http://h:x",
        "http://h:99999",
        "http://user:secret@h",
        "http://h/?token=1",
        "http://h/#top",
        None,
    ],
)
def test_any_other_url_is_rejected(url: str) -> None:
    with pytest.raises(InvalidInput, match="not the address of a relay"):
        parse_address(url)
