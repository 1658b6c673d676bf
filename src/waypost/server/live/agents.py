"""Rows about connected agents."""

from collections.abc import Iterable
from itertools import islice

import msgspec

from waypost.relay.inspection.inspector import Inspector
from waypost.server.sessions.hub import Present

ROWS_MAX = 2000


class AgentRow(msgspec.Struct, frozen=True, gc=False):
    """One connected agent: since when (µs), how it gets mail, from where, and what is under way.

    `pending` messages wait for it, `unconfirmed` were sent to it, `unsent` operations it has yet
    to read.
    """

    subject: str
    since_us: int
    receive: str
    address: str
    pending: int
    unconfirmed: int
    unsent: int


def agent_rows(present: Iterable[Present], inspector: Inspector) -> list[AgentRow]:
    """Those who came first, at most `ROWS_MAX`."""
    return [_row(one, inspector) for one in islice(present, ROWS_MAX)]


def _row(agent: Present, inspector: Inspector) -> AgentRow:
    return AgentRow(
        subject=agent.subject,
        since_us=agent.since_us,
        receive=agent.receive,
        address=agent.address,
        pending=max(inspector.depth(agent.subject) - agent.unconfirmed, 0),
        unconfirmed=agent.unconfirmed,
        unsent=agent.unsent,
    )
