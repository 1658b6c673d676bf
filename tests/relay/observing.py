"""Observes a relay from outside: its journal, its files, its waiting tasks."""

import asyncio
import json
from collections.abc import Coroutine, Iterable
from pathlib import Path
from typing import Any, TypeVar

from tests.harness.journal_lines import events_of
from waypost import Endpoint, Envelope, PublishResult, RateLimitConfig, Reason, Relay

T = TypeVar("T")
UNLIMITED = RateLimitConfig(enabled=False)
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


async def send(
    relay: Relay,
    payload: object = None,
    *,
    to: str = "agent.a",
    sender: str = "agent.b",
    **more: Any,
) -> PublishResult:
    """Publish with the names most tests use."""
    return await relay.publish(to, payload, sender=sender, **more)


def drafts(
    count: int, *, to: str = "agent.a", sender: str = "agent.b", payload: object = None
) -> list[dict[str, object]]:
    """Return `count` messages for `publish_many`."""
    return [{"subject": to, "payload": payload, "sender": sender} for _ in range(count)]


def payloads(envelopes: Iterable[Envelope]) -> list[Any]:
    return [envelope.payload for envelope in envelopes]


def reasons(result: PublishResult) -> list[Reason]:
    return [rejection.reason for rejection in result.rejected]


def events(data: Path, *kinds: str) -> list[dict[str, Any]]:
    """Return the events of the journal, or those of some kinds, without commit lines."""
    segments = sorted(
        path for path in (data / "journal").iterdir() if path.suffix in (".jsonl", ".open")
    )
    lines = [line for path in segments for line in path.read_bytes().splitlines()]
    found = [event for line in lines for event in events_of(line) if event["kind"] != "commit"]
    return [event for event in found if not kinds or event["kind"] in kinds]


def segments(data: Path) -> list[str]:
    return sorted(path.name for path in (data / "journal").glob("*.jsonl"))


def files(endpoint: Endpoint) -> dict[str, list[str]]:
    """Return the names of the files in each folder of a mailbox."""
    assert endpoint.maildir_path is not None
    return {
        folder.name: sorted(path.name for path in folder.iterdir())
        for folder in sorted(endpoint.maildir_path.iterdir())
    }


def tree(directory: Path) -> dict[str, bytes]:
    """Return the content of every file below `directory`, by path."""
    return {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }


def write(path: Path, content: object) -> None:
    """Write text unchanged, or anything else as JSON, to a file."""
    for directory in reversed(path.parents):
        directory.mkdir(mode=0o700, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content))


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def remove(path: Path) -> None:
    path.unlink()


def pending(relay: Relay, subject: str = "agent.a") -> int:
    return next((one.pending for one in relay.metrics().endpoints if one.subject == subject), 0)


async def begun(relay: Relay, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
    """Start `work` in a task, and let it run until it waits for the clock."""
    task = asyncio.ensure_future(work)
    await asyncio.sleep(0)
    await relay.idle()
    await asyncio.sleep(0)
    return task
