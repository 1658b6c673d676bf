"""docs/client.md: its programs print the stated output, its table lists all options."""

import asyncio
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from tests.harness.listening_relay import ListeningRelay
from waypost.client import ClientOptions

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "client.md").read_text(encoding="utf-8")
PROGRAM = re.compile(r"^```python\n(.*?)^```\n\n```text\n(.*?)^```", re.MULTILINE | re.DOTALL)
FRAME = """import asyncio
from waypost.client import Identity, connect
URL = "http://127.0.0.1:7171"

async def main() -> None:
    async with (
        connect(URL, Identity.new("agent.ann")) as ann,
        connect(URL, Identity.new("agent.bob")) as bob,
    ):
{body}

asyncio.run(main())
"""


def programs() -> Iterator[Any]:
    for found in PROGRAM.finditer(PAGE):
        connection = PAGE.count("\n", 0, found.start()) + 2
        yield pytest.param(found[1], found[2], id=f"line-{connection}")


def test_every_program_states_its_output() -> None:
    assert PAGE.count("```python") == len(list(programs())) > 9


@pytest.mark.process
@pytest.mark.parametrize(("program", "expected"), list(programs()))
async def test_every_program_on_the_page_prints_the_stated_output(
    program: str, expected: str, tmp_path: Path, relay: ListeningRelay
) -> None:
    if "URL = " not in program:
        program = FRAME.format(body=indent(program, " " * 8))
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-W",
        "error",
        "-c",
        program.replace("http://127.0.0.1:7171", relay.url),
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        printed, complaints = await running.communicate()
    assert printed.decode() == expected, complaints.decode()
    assert running.returncode == 0


def test_the_table_names_every_option_with_its_default() -> None:
    stated = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", PAGE, re.MULTILINE))
    assert list(stated) == list(ClientOptions.__struct_fields__)
    for name, cell in stated.items():
        default = getattr(ClientOptions(), name)
        if name == "guard":
            continue
        written = cell.strip("`")
        assert (
            float(written) == default
            if written[0].isdigit()
            else written == repr(default).replace("'", '"')
        ), name
