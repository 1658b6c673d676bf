"""Every response matches the OpenAPI document, for anonymous callers, agents and the operator.

Requests are made up from the document, valid and invalid ones. No answer may be a mistake of
ours, and each must have a documented status, content type and shape.
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx
import hypothesis
import pytest
import requests
import schemathesis
from schemathesis import checks

from tests.server.http.http_relay import ORIGIN, HttpRelay, behind_gate
from waypost import Settings
from waypost.policy.rate_limits import RateLimitConfig
from waypost.policy.subjects import is_subject
from waypost.policy.tiers import QosConfig
from waypost.server.http.openapi import make_document
from waypost.server.http.operations import OPERATIONS
from waypost.server.server import make_app, open_context
from waypost.testing import ManualClock
from waypost.wire.http_bodies import INBOX_WAIT_MAX_S

T = TypeVar("T")


def without_security(document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without security: each caller has its own token."""
    for methods in document["paths"].values():
        for operation in methods.values():
            operation.pop("security", None)
    return document


schema = schemathesis.openapi.from_dict(without_security(make_document(OPERATIONS)))

CHECKS = [
    checks.not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_headers_conformance,
    checks.response_schema_conformance,
    checks.negative_data_rejection,
    checks.unsupported_method,
]


class Background:
    """An event loop in a thread for the relay; examples are generated in the main thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def stop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._loop.close()


@asynccontextmanager
async def serve(data: Path) -> AsyncIterator[HttpRelay]:
    clock = ManualClock()
    settings = Settings(
        storage="journal",
        durability="async",
        watch_files=False,
        rate_limit=RateLimitConfig(max_per_window=50),
        qos=QosConfig(enabled=True),
    )
    async with open_context(data, settings=settings, clock=clock) as context:
        app = make_app(context)
        transport = httpx.ASGITransport(app=behind_gate(app))
        async with httpx.AsyncClient(transport=transport, base_url=f"http://{ORIGIN}") as client:
            operator = (data / "operator-token").read_text().strip()
            served = HttpRelay(app, context, clock, client, operator)
            await served.publish("agent.a", "something to find", message_id="m1")
            yield served


class Caller:
    """Sends generated requests with a fixed token or none."""

    def __init__(self, background: Background, served: HttpRelay, token: str | None) -> None:
        self._background = background
        self._served = served
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}

    def send(self, case: schemathesis.Case) -> httpx.Response:
        made_up = requests.Request(**case.as_transport_kwargs(base_url=f"http://{ORIGIN}"))
        prepared = made_up.prepare()
        request = httpx.Request(
            prepared.method or "GET",
            prepared.url or "",
            headers={**prepared.headers, **self._headers},
            content=prepared.body,
        )
        return self._background.run(self._served.client.send(request))


@pytest.fixture(scope="module", params=["nobody", "agent", "operator"])
def caller(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Caller]:
    background = Background()
    serving = serve(tmp_path_factory.mktemp("data"))
    served = background.run(serving.__aenter__())
    token = {
        "nobody": lambda: None,
        "agent": lambda: background.run(served.token("agent.a")),
        "operator": lambda: served.operator,
    }[request.param]()
    yield Caller(background, served, token)
    background.run(serving.__aexit__(None, None, None))
    background.stop()


def aim(case: schemathesis.Case) -> None:
    """Replace valid names by existing ones, and never long-poll."""
    named = case.path_parameters or {}
    if case.path == "/v1/live" and (case.query or {}).get("once", False) in (False, "false"):
        case.query = {**(case.query or {}), "once": "true"}
    if is_subject(named.get("folder")) and is_subject(named.get("file")):
        named["folder"], named["file"] = "style", "page.css"
    if is_subject(named.get("subject")):
        named["subject"] = "agent.a"
    if is_subject(named.get("id")):
        named["id"] = "m1"
    try:
        if 0 <= float((case.query or {}).get("wait", -1)) <= INBOX_WAIT_MAX_S:
            case.query["wait"] = 0
    except (TypeError, ValueError):
        pass


@schema.parametrize()
@hypothesis.settings(
    max_examples=10,
    derandomize=True,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_every_answer_is_documented(case: schemathesis.Case, caller: Caller) -> None:
    aim(case)
    case.validate_response(caller.send(case), checks=CHECKS)
