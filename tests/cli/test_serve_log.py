"""The log of a served relay that strangers send nonsense to."""

import asyncio
import json
from pathlib import Path

import pytest

from tests.cli.serve_process import serving
from tests.server.sockets.raw_connection import RawConnection, text_frame

pytestmark = pytest.mark.process

REQUESTS = (b"\x00\xff" * 50, b"GET / HTTP/1.1\r\nX\r\n\r\n", b"GET /%ff HTTP/9.9\r\n\r\n")
FRAMES = (text_frame(b"\xff\xfe"), b"\xf1\x80" + b"\x00" * 4, text_frame(b"{", opcode=3))


def test_nonsense_writes_few_lines_and_no_traceback(tmp_path: Path) -> None:
    async def attack(address: str) -> None:
        for _ in range(30):
            for request in REQUESTS:
                connection = await RawConnection.open(address)
                await connection.send(request)
                await connection.ended()
            for frame in FRAMES:
                connection = await RawConnection.open(address)
                await connection.upgrade(address)
                await connection.send(frame)
                await connection.reader.readuntil(b"\x88")  # the close frame
                connection.close()

    with serving(tmp_path, "--log-format", "json") as relay:
        asyncio.run(attack(relay.url.removeprefix("http://")))
        lines = [json.loads(line) for line in relay.log.splitlines()]
    assert not [line for line in lines if "exception" in line]
    rejected = [line for line in lines if line["level"] != "info"]
    texts = " ".join(line["message"] for line in rejected)
    assert "request rejected: " in texts
    assert "connection closed: " in texts
    assert len(rejected) <= 40  # ten of each kind in a minute, and a minute may end
