"""Every batch names the hash of the batch before it: across segments, restarts and versions."""

import json
import os
import re
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

from tests.faults import plain_journal
from tests.relay.observing import send
from waypost import Relay


def commits(data: Path) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Yield the commit line of every batch, and the bytes of the batch."""
    for path in plain_journal.segments(data):
        content = path.read_bytes()
        for start, end, _ in plain_journal.batches(content):
            yield json.loads(content[start:end].splitlines()[-1]), content[start:end]


def unchain(data: Path) -> None:
    """Make every batch one of an older version."""
    for path in plain_journal.segments(data):
        path.write_bytes(re.sub(rb',"prev":"[0-9a-f]{64}"', b"", path.read_bytes()))


async def test_the_first_batch_names_no_batch_and_each_further_one_the_batch_before_it(
    relay: Relay, data: Path
) -> None:
    for number in range(3):
        await send(relay, number)
    found = list(commits(data))
    assert found[0][0]["prev"] == "0" * 64
    assert len(found) > 3
    plain_journal.assert_chained(data)


async def test_the_chain_goes_on_in_the_next_segment_and_after_a_restart(start, data: Path) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, 1)
    await relay.seal_journal()
    relay = await start()  # the new segment has no batch yet
    await send(relay, 2)
    relay = await start()
    await relay.seal_journal()
    await send(relay, 3)
    await relay.close()
    assert len(plain_journal.segments(data)) == 3
    plain_journal.assert_chained(data)


async def test_after_a_batch_larger_than_what_is_read_first_the_chain_goes_on(
    start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    many = [{"subject": "agent.a", "payload": "x" * 4000, "sender": "agent.b"} for _ in range(40)]
    await relay.publish_many(many)
    await start()
    assert any(len(batch) > 100_000 for _, batch in commits(data))
    plain_journal.assert_chained(data)


async def test_after_a_torn_write_the_chain_continues_from_the_last_valid_batch(
    start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await send(relay, 1)
    await relay.close()
    (path,) = plain_journal.segments(data)
    os.truncate(path, path.stat().st_size - 5)
    await start()
    plain_journal.assert_chained(data)


async def test_the_first_batch_after_batches_of_an_older_version_names_the_last_of_them(
    start, data: Path
) -> None:
    relay = await start()
    relay.register_endpoint("agent.a")
    await relay.close()
    unchain(data)
    *_, (_, last) = commits(data)
    (path,) = plain_journal.segments(data)
    size = path.stat().st_size
    relay = await start()
    (commit, _) = next(
        one for one in commits(data) if one[0]["seq"] > json.loads(last.splitlines()[-1])["seq"]
    )
    assert commit["prev"] == sha256(last).hexdigest()
    assert path.stat().st_size > size


async def test_a_batch_names_the_hash_of_the_large_payloads_written_with_it(
    relay: Relay, data: Path
) -> None:
    relay.register_endpoint("agent.b")
    await send(relay, "small")
    await send(relay, "x" * 10_000, to="agent.*", sender="agent.c")
    await send(relay, "y" * 20_000)
    found = [commit["bodies"] for commit, _ in commits(data) if "bodies" in commit]
    (bodies,) = (data / "journal").glob("*.bodies")
    content = bodies.read_bytes()
    assert [(offset, length) for offset, length, _ in found] == [(0, 10_002), (10_002, 20_002)]
    for offset, length, digest in found:
        assert sha256(content[offset : offset + length]).hexdigest() == digest
