"""Descriptions of the tools, as a host reads them before any call."""

from typing import Any

import pytest
from mcp.types import Tool

from tests.mcp.models import Model

NAMES = {
    "relay_send",
    "relay_send_and_wait",
    "relay_inbox",
    "relay_ack",
    "relay_nack",
    "relay_list_endpoints",
    "relay_register_endpoint",
    "relay_status",
    "relay_explain",
    "relay_reset_guard",
    "relay_thread",
    "relay_scheduled",
    "relay_find_agents",
}


@pytest.fixture
async def tools(ann: Model) -> dict[str, Tool]:
    return {one.name: one for one in (await ann.client.list_tools()).tools}


async def test_there_are_thirteen_tools_each_with_a_title_and_a_description(
    tools: dict[str, Tool],
) -> None:
    assert tools.keys() == NAMES
    for tool in tools.values():
        assert tool.title
        assert len(tool.description or "") > 60


async def test_every_argument_is_described(tools: dict[str, Tool]) -> None:
    silent = [
        f"{tool.name}.{name}"
        for tool in tools.values()
        for name, schema in properties(tool).items()
        if len(schema.get("description", "")) < 15
    ]
    assert silent == []


async def test_the_hints_mark_tools_that_change_something(tools: dict[str, Tool]) -> None:
    hints = {name: tool.annotations for name, tool in tools.items()}
    assert all(hints.values())
    reading = {name for name, one in hints.items() if one and one.read_only_hint}
    destroying = {name for name, one in hints.items() if one and one.destructive_hint}
    repeatable = {name for name, one in hints.items() if one and one.idempotent_hint}
    assert reading == {
        "relay_inbox",
        "relay_list_endpoints",
        "relay_status",
        "relay_explain",
        "relay_thread",
        "relay_find_agents",
    }
    assert destroying == {"relay_ack", "relay_reset_guard", "relay_scheduled"}
    assert repeatable == NAMES - {"relay_send", "relay_send_and_wait", "relay_inbox", "relay_nack"}


async def test_tools_that_show_text_of_other_agents_have_no_structured_result(
    tools: dict[str, Tool],
) -> None:
    without = {name for name, tool in tools.items() if tool.output_schema is None}
    assert without == {"relay_inbox", "relay_send_and_wait", "relay_find_agents"}


async def test_the_instructions_name_the_agent_and_call_other_agents_untrusted(ann: Model) -> None:
    output = ann.client.instructions or ""
    assert "You are agent.ann" in output
    assert "untrusted" in output
    assert "relay_ack" in output


def properties(tool: Tool) -> dict[str, Any]:
    return dict(tool.input_schema.get("properties", {}))
