"""Liveness, readiness and metrics over HTTP."""

from importlib.metadata import version

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from waypost.relay.errors import RelayStopped
from waypost.server.context import ServeOptions


async def test_the_process_is_up_before_the_relay_is_open(served: HttpRelay) -> None:
    del served.app.state.context
    up = await served.call("GET", "/healthz")
    ready = await served.call("GET", "/readyz")
    assert (up.status_code, up.json()) == (200, {"status": "up"})
    assert (ready.status_code, ready.json()["reason"]) == (503, "stopped")


async def test_a_relay_that_accepts_messages_is_ready(served: HttpRelay) -> None:
    ready = await served.call("GET", "/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "ready")
    assert ready.json()["version"] == version("waypost")


async def test_a_full_disk_is_not_ready(served: HttpRelay) -> None:
    served.relay._runtime.journal.full = True
    ready = await served.call("GET", "/readyz")
    assert (ready.status_code, ready.json()["reason"]) == (503, "storage_full")


async def test_a_failed_journal_is_not_ready_and_gives_the_reason(served: HttpRelay) -> None:
    served.relay._runtime.journal.failure = RelayStopped("fdatasync failed")
    ready = await served.call("GET", "/readyz")
    assert ready.status_code == 503
    assert "fdatasync failed" in ready.json()["error"]


async def test_a_closed_relay_is_up_but_not_ready(served: HttpRelay) -> None:
    await served.relay.close()
    assert (await served.call("GET", "/healthz")).status_code == 200
    assert (await served.call("GET", "/readyz")).status_code == 503


async def test_an_unexpected_query_is_ignored(served: HttpRelay) -> None:
    assert (await served.call("GET", "/healthz?_=123&_=124")).status_code == 200


async def test_metrics_may_be_for_the_operator_alone(serve: Serve) -> None:
    served = await serve(ServeOptions(metrics="operator"))
    answers = {
        "anyone": await served.call("GET", "/metrics"),
        "agent": await served.call("GET", "/metrics", token=await served.token("agent.a")),
        "operator": await served.call("GET", "/metrics", token=served.operator),
    }
    assert {name: one.status_code for name, one in answers.items()} == {
        "anyone": 401,
        "agent": 403,
        "operator": 200,
    }
    assert "waypost_" not in answers["anyone"].text + answers["agent"].text
