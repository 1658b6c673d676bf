"""The pages list the actual tools, arguments, options and reasons."""

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command_tree import command_tree
from tests.mcp.models import Model
from waypost.policy.reasons import Reason

DOCS = Path(__file__).parents[2] / "docs"
MCP = (DOCS / "mcp.md").read_text(encoding="utf-8")
CLI = (DOCS / "reference" / "command-line.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.M | re.S)


def section(page: str, heading: str) -> str:
    level = heading.split(" ", 1)[0]
    found = page.split(f"\n{heading}\n", 1)[1]
    return re.split(rf"^#{{1,{len(level)}}} ", found, maxsplit=1, flags=re.M)[0]


def first_column(text: str) -> set[str]:
    rows = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([\w-]+)", row)}


def options() -> dict[str, Any]:
    command: Any = command_tree()
    return {one.opts[0]: one for one in command.commands["mcp"].params if one.name != "help"}


async def test_every_tool_is_documented_with_its_arguments(ann: Model) -> None:
    for tool in (await ann.client.list_tools()).tools:
        output = first_column(section(MCP, f"### `{tool.name}`"))
        assert output == set(tool.input_schema.get("properties", {})), tool.name


def test_every_reason_for_a_rejection_is_in_the_table() -> None:
    assert first_column(section(MCP, "## Output for the model")) == set(Reason)


def test_every_option_of_the_command_is_documented() -> None:
    assert first_column(section(CLI, "## waypost mcp")) == options().keys()


@pytest.mark.parametrize(
    "block", [found for found in BLOCK.findall(MCP) if found[0] in ("json", "toml")]
)
def test_the_configurations_to_copy_use_valid_options(block: tuple[str, str]) -> None:
    language, text = block
    config = json.loads(text) if language == "json" else tomllib.loads(text)
    [servers] = config.values()
    known = options()
    variables = {one.envvar for one in known.values()} | {"SSL_CERT_FILE"}
    for server in servers.values():
        if "url" in server:
            assert server["url"].endswith("/mcp")
            continue
        verb, *arguments = server["args"]
        assert verb == "mcp"
        assert {one for one in arguments if one.startswith("-")} <= known.keys()
        assert server.get("env", {}).keys() <= variables
