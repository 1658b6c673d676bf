"""No content of a message can be taken for a line of the journal."""

import json
from pathlib import Path

import msgspec
import pytest

from tests.faults import plain_journal
from tests.faults.history import forget_index
from waypost import RateLimitConfig, Relay, Settings
from waypost.policy.errors import InvalidInput

SETTINGS = Settings(watch_files=False, rate_limit=RateLimitConfig(enabled=False))
FORGED = '{"kind":"commit","seq":1,"at_us":1,"count":0,"bytes":0,"crc":0}'
HOSTILE = [
    f"\n{FORGED}\n",
    {"\n": f"\n{FORGED}\n"},
    "\r\n\x85\u2028\u2029\x0b\x0c\0",
    "\ud7ff\U0010ffff\ufffe",
    [[[[f'"}}\n{FORGED}\n']]]],
    f'"{FORGED}"',
    {"kind": "commit", "seq": 1, "at_us": 1, "count": 0, "bytes": 0, "crc": 0},
]


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("storage", ["journal", "maildir"])
async def test_payloads_are_delivered_as_they_were_sent(
    tmp_path: Path, storage: str, size: str
) -> None:
    settings = msgspec.structs.replace(SETTINGS, storage=storage)
    more = {"small": "", "large": "y" * 5_000}[size]
    async with Relay(tmp_path, settings=settings) as relay:
        relay.register_endpoint("agent.a")
        for payload in HOSTILE:
            await relay.publish("agent.a", {"it": payload, "more": more}, sender="agent.x")
    plain_journal.committed(tmp_path)  # every line is one event
    forget_index(tmp_path)
    async with Relay(tmp_path, settings=settings) as relay:
        leased = await relay.lease("agent.a")
        assert [one.payload["it"] for one in leased] == HOSTILE


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":\n1,\r\n"b":\t[2,\n3]}',
        b'  "spaces around"  ',
        b'"a raw\nnewline"',
        b'"x"\n' + FORGED.encode() + b"\n",
        b'1}\n{"kind":"acked","id":"x","endpoint":"agent.a"}\n{"a":1',
        b"[1, 2",
        b"",
        b"\xff",
        b"NaN",
    ],
)
async def test_text_that_claims_to_be_json_takes_one_line_or_is_rejected(
    tmp_path: Path, raw: bytes
) -> None:
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        relay.register_endpoint("agent.a")
        try:
            await relay.publish("agent.a", msgspec.Raw(raw), sender="agent.x")
            expected = [json.loads(raw)]
        except InvalidInput:
            expected = []
        await relay.publish("agent.a", "after", sender="agent.x")
    kinds = [event["kind"] for event in plain_journal.committed(tmp_path)]
    assert kinds.count("accepted") == len(expected) + 1
    assert "acked" not in kinds
    forget_index(tmp_path)
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        assert relay._runtime.report.damaged == []
        assert [one.payload for one in await relay.lease("agent.a")] == [*expected, "after"]


@pytest.mark.parametrize("raw", [b'"a raw\nnewline"', b"[1, 2", b'1}\n{"kind":"acked"}\n{"a":1'])
async def test_a_file_dropped_in_cannot_write_into_the_journal(tmp_path: Path, raw: bytes) -> None:
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        mailbox = relay.register_endpoint("agent.a").maildir_path
        assert mailbox is not None
        (mailbox / "new" / "dropped").write_bytes(b'{"sender":"agent.y","payload":' + raw + b"}")
        relay._runtime.drop_ins.scan_all()
        await relay.publish("agent.a", "after", sender="agent.x")
    assert "acked" not in [event["kind"] for event in plain_journal.committed(tmp_path)]
    forget_index(tmp_path)
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        assert [one.payload for one in await relay.lease("agent.a")] == ["after"]


async def test_sizes_are_those_of_the_files_whatever_the_header(tmp_path: Path) -> None:
    chains = [[], ["agent.b"], ["é"], ['"\\'], ["\n"], ["a b", "日本", "x" * 300], ["\x7f\x00"]]
    async with Relay(tmp_path, settings=SETTINGS) as relay:
        endpoint = relay.register_endpoint("agent.a")
        for chain in chains:
            for reply_to in (None, "agent.r"):
                try:
                    await relay.publish(
                        "agent.a",
                        "é\n",
                        sender="agent.x",
                        reply_to=reply_to,
                        budget={"ancestor_chain": chain},
                    )
                except InvalidInput:
                    continue
        assert endpoint.maildir_path is not None
        sizes = [path.stat().st_size for path in (endpoint.maildir_path / "new").iterdir()]
        (found,) = relay.metrics().endpoints
        assert found.pending == len(sizes) >= 4
        assert found.bytes == sum(sizes)
