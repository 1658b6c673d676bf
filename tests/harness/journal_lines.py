"""Decodes lines of the journal without the code under test."""

import json
from typing import Any

Event = dict[str, Any]


def events_of(line: bytes | str) -> list[Event]:
    """Return the events that a line stands for: one, or one for each of its `ids`."""
    event = json.loads(line)
    ids = event.pop("ids", None)
    if ids is None:
        return [event]
    first_seq = event["seq"] - len(ids) + 1
    return [{**event, "seq": seq, "id": one} for seq, one in enumerate(ids, first_seq)]
