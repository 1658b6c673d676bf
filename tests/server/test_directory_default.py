"""Who sees whom by default, by the address that a relay listens on."""

import pytest

from tests.server.conftest import ServeRelay
from waypost.server.server import Listen


@pytest.mark.parametrize(
    ("listen", "mode"),
    [
        (Listen(port=0), "open"),
        (Listen(port=0, origins=("localhost",)), "open"),
        (Listen(port=0, origins=("https://relay.example", "127.0.0.1")), "contacts"),
        (Listen(port=0, trusted_proxies=("127.0.0.1",)), "contacts"),
        (Listen(host="0.0.0.0", port=0), "contacts"),
    ],
)
async def test_agents_of_one_machine_see_each_other_others_their_contacts(
    serve_relay: ServeRelay, listen: Listen, mode: str
) -> None:
    relay = await serve_relay(listen)
    assert relay.context.directory.mode == mode
