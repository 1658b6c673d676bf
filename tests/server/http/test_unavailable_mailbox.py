"""A mailbox that cannot be created: 503 with its own reason, and the relay is not ready."""

import errno

import pytest

from tests.faults.directories import no_new_directories
from tests.server.http.conftest import Serve

ERRORS = [errno.ENOSPC, errno.EACCES, errno.EMFILE]


@pytest.mark.parametrize("number", ERRORS)
async def test_a_message_to_a_new_name_gets_503_and_the_relay_is_not_ready(
    serve: Serve, number: int
) -> None:
    served = await serve(storage="maildir")
    token = await served.token("agent.a")
    with no_new_directories(number):
        message = {"subject": "agent.new", "payload": 1}
        rejected = await served.call("POST", "/v1/messages", token=token, json=message)
        assert (rejected.status_code, rejected.json()["reason"]) == (503, "mailbox_unavailable")
        ready = await served.call("GET", "/readyz")
        assert (ready.status_code, ready.json()["reason"]) == (503, "mailbox_unavailable")
        own = {"subject": "agent.a", "payload": 1}
        assert (await served.call("POST", "/v1/messages", token=token, json=own)).is_success
        registered = await served.call("PUT", "/v1/endpoints/agent.b", token=served.operator)
        assert (registered.status_code, registered.json()["reason"]) == (
            503,
            "mailbox_unavailable",
        )
    served.relay.sweep()
    assert (await served.call("GET", "/readyz")).status_code == 200
    assert (await served.call("POST", "/v1/messages", token=token, json=message)).is_success
