"""Rows about connected agents."""

from collections.abc import Iterable
from itertools import islice

import msgspec

from waypost.relay.state.relay_state import RelayState
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


def agent_rows(present: Iterable[Present], state: RelayState) -> list[AgentRow]:
    """Those who came first, at most `ROWS_MAX`."""
    return [_row(one, state) for one in islice(present, ROWS_MAX)]


def _row(agent: Present, state: RelayState) -> AgentRow:
    mailbox = state.mailboxes.get(agent.subject)
    depth = 0 if mailbox is None else mailbox.occupancy.depth
    return AgentRow(
        subject=agent.subject,
        since_us=agent.since_us,
        receive=agent.receive,
        address=agent.address,
        pending=max(depth - agent.unconfirmed, 0),
        unconfirmed=agent.unconfirmed,
        unsent=agent.unsent,
    )
