"""Relays of several nodes: which address an agent talks to, and which it never does."""

import pytest

from waypost.client.errors import CannotConnect
from waypost.client.route import MOVES_MAX, Route
from waypost.policy.errors import InvalidInput


def test_an_agent_begins_with_the_first_address_and_goes_on_with_the_next() -> None:
    route = Route.parse("http://a:1, http://b:2")
    seen = []
    for _ in range(3):
        seen.append(route.current.origin)
        route.give_up()
    assert seen == ["a:1", "b:2", "a:1"]


def test_an_agent_follows_to_an_address_it_was_given_and_to_another_port_of_its_host() -> None:
    route = Route.parse("http://a:1,http://b:2")
    assert route.follow("http://b:2")
    assert route.current.origin == "b:2"
    assert route.follow("http://b:3")
    assert route.current.origin == "b:3"


@pytest.mark.parametrize(
    "url", ["http://c:1", "http://169.254.169.254", "http://a.example:1", "http://localhost:1"]
)
def test_an_agent_does_not_follow_to_a_host_it_was_not_given(url: str) -> None:
    route = Route.parse("http://a:1,http://b:2")
    with pytest.raises(CannotConnect, match=r"was not given: .* name both, separated by a comma"):
        route.follow(url)
    assert route.current.origin == "a:1"


@pytest.mark.parametrize("url", ["", "b", "file:///etc/passwd", "http://b:2/?x=1", "http://u@b:2"])
def test_a_move_to_no_address_of_a_relay_is_an_error(url: str) -> None:
    with pytest.raises(CannotConnect, match="not the address of a relay"):
        Route.parse("http://a:1,http://b:2").follow(url)


def test_a_connection_with_tls_is_never_followed_by_one_without() -> None:
    with pytest.raises(CannotConnect, match="was not given"):
        Route.parse("https://a:1,https://b:1").follow("http://b:1")
    assert Route.parse("http://a:1").follow("https://a:1")


def test_nodes_that_send_an_agent_to_each_other_are_left_after_some_moves() -> None:
    route = Route.parse("http://a:1,http://b:2,http://c:3")
    for move in range(MOVES_MAX):
        assert route.follow(f"http://{'ba'[move % 2]}:1")
    assert not route.follow("http://a:1")
    assert route.current.origin == "b:2"
    assert route.follow("http://a:1")


def test_a_welcome_ends_the_count_of_moves() -> None:
    route = Route.parse("http://a:1")
    for _ in range(3 * MOVES_MAX):
        assert route.follow("http://a:2")
        route.arrived()


@pytest.mark.parametrize(
    ("urls", "error"),
    [
        ("", "not the address of a relay"),
        ("http://a:1,", "not the address of a relay"),
        ("http://a:1,https://b:1", "with TLS and without"),
        (",".join(f"http://a:{port}" for port in range(1, 70)), "name 64 at most"),
    ],
)
def test_wrong_lists_of_addresses_are_errors(urls: str, error: str) -> None:
    with pytest.raises(InvalidInput, match=error):
        Route.parse(urls)
