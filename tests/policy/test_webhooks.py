"""Webhooks: allowed hosts, addresses, and the times of further tries."""

import pytest

from waypost import InvalidInput, InvalidSettings, Settings
from waypost.policy.settings import merge_settings
from waypost.policy.webhooks import (
    RETRY_DELAYS_MS,
    WebhooksConfig,
    check_addresses,
    check_host,
    network_kind,
    parse_url,
    retry_delay_ms,
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("https://hooks.example.com", ("https", "hooks.example.com", 443, "/")),
        ("HTTPS://Hooks.Example.COM/Wake?a=B", ("https", "hooks.example.com", 443, "/Wake?a=B")),
        ("http://10.0.0.7:8080/a", ("http", "10.0.0.7", 8080, "/a")),
        ("https://[2001:db8::1]:8443/", ("https", "2001:db8::1", 8443, "/")),
    ],
)
def test_a_url_has_a_scheme_a_host_a_port_and_a_path(text: str, parts: tuple[object]) -> None:
    assert tuple(parse_url(text)) == parts


@pytest.mark.parametrize(
    "text",
    [
        "",
        "hooks.example.com",
        "ftp://hooks.example.com",
        "https://",
        "https:///path",
        "https://user@hooks.example.com/",
        "https://hooks.example.com@evil.example/",
        "https://hooks.example.com:0/",
        "https://hooks.example.com:65536/",
        "https://hooks.example.com:443@evil/",
        "https://hooks.example.com./",
        "https://hooks..example.com/",
        "https://-a.example.com/",
        "https://hooks.example.com/#part",
        "https://hooks.example.com/a b",
        "https://hooks.example.com/a\r\nHost: other",
        "https://hooks.example.com\n/",
        "https://hooks.example.com/ü",
        "https://bücher.example/",
        "https://hooks.example.com?a=b",
        "https://hooks.example.com\\@evil.example/",
        "https://[::1/",
        "https://[1:2]/",
        "https://[fe80::1%25eth0]/",
        "https://hooks.example.com:000443/",
        "https://hooks.example.com/" + "a" * 2048,
    ],
)
def test_anything_else_is_no_url_and_the_error_shows_how_to_write_one(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"https://HOST|characters|IPv6"):
        parse_url(text)


@pytest.mark.parametrize(
    ("entry", "url", "allowed"),
    [
        ("hooks.example.com", "https://hooks.example.com/a", True),
        ("hooks.example.com", "https://HOOKS.example.com:443/a", True),
        ("hooks.example.com", "https://hooks.example.com:8443/a", False),
        ("hooks.example.com:8443", "https://hooks.example.com:8443/a", True),
        ("hooks.example.com:8443", "https://hooks.example.com/a", False),
        ("hooks.example.com:*", "https://hooks.example.com:9/a", True),
        ("hooks.example.com", "https://evil.hooks.example.com/", False),
        ("hooks.example.com", "https://hooks.example.com.evil.example/", False),
        ("*.example.com", "https://a.b.example.com/", True),
        ("*.example.com", "https://example.com/", False),
        ("*.example.com", "https://notexample.com/", False),
        ("[2001:db8::1]", "https://[2001:db8:0::1]/", True),
        ("*.0.0.1", "https://127.0.0.1/", False),
    ],
)
def test_an_entry_stands_for_hosts_and_a_port(entry: str, url: str, allowed: bool) -> None:
    verdict = check_host(parse_url(url), WebhooksConfig(allowed_hosts=[entry]))
    assert verdict.allowed is allowed
    assert allowed or "of this relay does not have" in verdict.detail


def test_by_default_no_host_is_allowed() -> None:
    assert not check_host(parse_url("https://hooks.example.com/"), Settings().webhooks).allowed


def test_plain_http_is_for_private_hosts_at_private_addresses() -> None:
    url = parse_url("http://hooks.example.com/")
    assert not check_host(url, WebhooksConfig(allowed_hosts=["hooks.example.com"])).allowed
    verdict = check_host(url, WebhooksConfig(private_hosts=["hooks.example.com"]))
    assert verdict.allowed
    assert not check_addresses(url, ["10.0.0.7"], private=True)
    assert "needs https" in check_addresses(url, ["10.0.0.7", "93.184.215.14"], private=True)


@pytest.mark.parametrize("entry", ["", "*", "Hooks.example.com", "a b", "https://a", "a:x", "*.*"])
def test_an_entry_that_is_no_host_is_rejected_with_the_setting(entry: str) -> None:
    document = b'{"webhooks": {"allowedHosts": ["%b"]}}' % entry.encode()
    with pytest.raises(InvalidSettings, match="is not a host"):
        merge_settings(Settings(), document)


@pytest.mark.parametrize(
    ("address", "kind"),
    [
        ("93.184.215.14", "public"),
        ("2606:4700::1111", "public"),
        ("64:ff9b::5db8:d70e", "public"),
        ("127.0.0.1", "private"),
        ("127.8.9.1", "private"),
        ("::1", "private"),
        ("::ffff:127.0.0.1", "private"),
        ("64:ff9b::7f00:1", "private"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("192.168.1.1", "private"),
        ("100.64.0.1", "private"),
        ("fd00::1", "private"),
        ("fec0::1", "private"),
        ("0.0.0.0", "forbidden"),
        ("::", "forbidden"),
        ("169.254.169.254", "forbidden"),
        ("::ffff:169.254.169.254", "forbidden"),
        ("fe80::1%eth0", "forbidden"),
        ("224.0.0.1", "forbidden"),
        ("ff02::1", "forbidden"),
        ("255.255.255.255", "forbidden"),
        ("240.0.0.1", "forbidden"),
        ("192.0.0.192", "forbidden"),
        ("::ffff:192.0.0.192", "forbidden"),
        ("::10.0.0.1", "forbidden"),
        ("::ffff:0:10.0.0.1", "forbidden"),
        ("64:ff9b::a9fe:a9fe", "forbidden"),
        ("64:ff9b:1::a00:1", "forbidden"),
        ("2002:7f00:1::", "forbidden"),
        ("2001:0:4136:e378:8000:63bf:3fff:fdd2", "forbidden"),
        ("nonsense", "forbidden"),
    ],
)
def test_an_address_is_public_private_or_forbidden(address: str, kind: str) -> None:
    assert network_kind(address) == kind


def test_every_address_of_a_host_must_be_allowed() -> None:
    url = parse_url("https://hooks.example.com/")
    assert not check_addresses(url, ["93.184.215.14"], private=False)
    mixed = check_addresses(url, ["93.184.215.14", "10.0.0.7"], private=False)
    assert "private address 10.0.0.7" in mixed
    assert "no webhook may have" in check_addresses(url, ["169.254.169.254"], private=True)
    assert "no address" in check_addresses(url, [], private=False)


def test_the_tries_of_a_notice_get_rarer_and_end() -> None:
    delays = [retry_delay_ms(failures) for failures in range(1, 8)]
    assert delays == [*RETRY_DELAYS_MS, None, None]
    assert list(RETRY_DELAYS_MS) == sorted(RETRY_DELAYS_MS)
