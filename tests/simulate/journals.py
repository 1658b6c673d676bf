"""Read the journal of a simulation as plain JSON."""

from pathlib import Path
from typing import Any

from tests.harness.journal_lines import events_of
from waypost.policy.reserved_names import RELAY
from waypost.simulate import SimulationOptions, Summary, simulate

Event = dict[str, Any]


def run(out: Path, scenario: str = "mixed", messages: int = 3000, **more: Any) -> Summary:
    """Simulate into `out`, by default with 40 agents and seed 7."""
    fields = {"agents": 40, "seed": 7, **more}
    return simulate(SimulationOptions(out=out, scenario=scenario, messages=messages, **fields))


def lines(data: Path) -> list[Event]:
    """Return every event of every sealed segment, including commits, in order."""
    return [
        event
        for path in sorted((data / "journal").glob("*.jsonl"))
        for line in path.read_text(encoding="utf-8").splitlines()
        for event in events_of(line)
    ]


def events(data: Path, *kinds: str) -> list[Event]:
    """Return events of these kinds, or all but commits."""
    return [
        one for one in lines(data) if (one["kind"] in kinds if kinds else one["kind"] != "commit")
    ]


def rejected(data: Path, reason: str) -> list[Event]:
    """Return rejections with one reason."""
    return [one for one in events(data, "rejected") if one["reason"] == reason]


def publishes(data: Path) -> int:
    """Count the publishes of agents in the journal."""
    arrivals = events(data, "accepted", "rejected")
    own = [one for one in arrivals if one["sender"] != RELAY and one.get("part", 0) == 0]
    return sum(one.get("count", 1) for one in own)


def decisions(data: Path) -> list[Event]:
    """Return every line with ids replaced by the order of their first appearance."""
    names: dict[str, int] = {}
    found = lines(data)
    for line in found:
        line.pop("crc", None)  # of lines that hold ids
        line.pop("prev", None)  # the same, of the batch before
        if line.get("sender") == RELAY:
            line.pop("payload", None)  # names the ids of evicted messages
        for field in ("id", "thread", "parent"):
            if line.get(field):
                line[field] = names.setdefault(line[field], len(names))
    return found
