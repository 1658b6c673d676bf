"""With many endpoints, a request that visits all of them lets other tasks run in between.

The turns of another task are counted, not the time: a test machine may be slow.
"""

import pytest

from tests.server.http.conftest import Serve
from tests.server.http.http_relay import HttpRelay
from tests.turns import counting_turns
from waypost.relay.inspection.inspector import WALK_STEP

ENDPOINTS = 20 * WALK_STEP


@pytest.fixture
async def crowded(serve: Serve) -> HttpRelay:
    served = await serve()
    for n in range(ENDPOINTS):
        served.relay.register_endpoint(f"agent.a{n:05d}")
    await served.relay.publish("agent.a00007", 1, sender="agent.x")
    await served.relay.publish("agent.a00007", 2, sender="agent.x")
    await served.relay.publish("agent.a00003", 3, sender="agent.y")
    await served.relay.idle()
    return served


@pytest.mark.parametrize(
    "path",
    [
        "/v1/stats",
        "/v1/stats?inboxes=10000",
        "/v1/endpoints?limit=10000",
        "/v1/endpoints?limit=1",
        "/metrics",
        "/v1/live?once=true",
        "/v1/live?once=true&show=inboxes",
    ],
)
async def test_other_tasks_run_while_all_endpoints_are_visited(
    crowded: HttpRelay, path: str
) -> None:
    idle, few = await counting_turns(crowded.call("GET", "/healthz"))
    response, turns = await counting_turns(crowded.call("GET", path, token=crowded.operator))
    assert idle.status_code == response.status_code == 200
    assert turns >= few + ENDPOINTS // WALK_STEP - 1


async def test_the_fullest_inboxes_come_first_and_all_are_counted(crowded: HttpRelay) -> None:
    stats = await crowded.call("GET", "/v1/stats?inboxes=3", token=crowded.operator)
    shown = stats.json()
    assert [(one["subject"], one["pending"]) for one in shown["inboxes"]] == [
        ("agent.a00007", 2),
        ("agent.a00003", 1),
        ("agent.a00000", 0),
    ]
    assert shown["inboxes_total"] == ENDPOINTS
    assert shown["by_status"] == {"pending": 3, "scheduled": 0, "leased": 0, "dead": 0}


async def test_requests_share_one_count_until_the_next_is_due(crowded: HttpRelay) -> None:
    async def pending() -> int:
        stats = await crowded.call("GET", "/v1/stats", token=crowded.operator)
        return int(stats.json()["by_status"]["pending"])

    assert await pending() == 3
    await crowded.relay.publish("agent.a00001", 4, sender="agent.x")
    _, few = await counting_turns(crowded.call("GET", "/healthz"))
    again, turns = await counting_turns(pending())
    assert again == 3
    assert turns < few + ENDPOINTS // WALK_STEP
    crowded.clock.advance_ms(600_000)
    assert await pending() == 4


async def test_pages_of_endpoints_hold_each_once_in_order(crowded: HttpRelay) -> None:
    found: list[str] = []
    after = ""
    while True:
        path = f"/v1/endpoints?limit=1999{after}"
        page = (await crowded.call("GET", path, token=crowded.operator)).json()
        found += [one["subject"] for one in page["endpoints"]]
        if page["next"] is None:
            break
        after = f"&after={page['next']}"
    assert found == [f"agent.a{n:05d}" for n in range(ENDPOINTS)]
