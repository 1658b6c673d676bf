"""Parents: messages that follow-ups of an agent continue, as they were delivered to it.

Rule 1  Only a message that was delivered to an agent can be its parent.
Rule 2  Sender, reply address, thread and budget of a parent are those in the journal, less its
        delivery, whatever the agent claims. They decide what is an answer (`budgets.is_answer`).
Rule 3  Messages of the mailbox and those acknowledged lately are found in memory. Others are
        looked up in the journal, one at a time for all agents.
"""

import asyncio
from collections.abc import Callable, Iterable

from waypost.policy.admission import admit_sender
from waypost.policy.bounds import message_id_length_max_chars
from waypost.policy.settings import Settings
from waypost.relay.errors import RelayError
from waypost.relay.journal.history import Histories
from waypost.relay.state.ledger import Ledger
from waypost.relay.state.mailbox import Message
from waypost.relay.state.payloads import PayloadStore, envelope_of
from waypost.relay.state.recent import RecentlyAcked
from waypost.wire.envelopes import Envelope
from waypost.wire.events import Accepted, AnyEvent, Leased, Rejected


class Parents:
    """Finds the parents of follow-ups."""

    def __init__(
        self,
        ledger: Ledger,
        payloads: PayloadStore,
        histories: Histories,
        acked: RecentlyAcked,
        settings: Callable[[], Settings],
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._payloads = payloads
        self._histories = histories
        self._acked = acked
        self._settings = settings
        self._one_at_a_time = asyncio.Semaphore(1)

    def find(self, agent: str, message_id: str) -> Envelope | None:
        """Return a message delivered to `agent`, without payload, if it is known in memory."""
        mailbox = self._state.mailboxes.get(agent)
        message = None
        if mailbox is not None:
            message = mailbox.live.get(message_id) or mailbox.dead.get(message_id)
        if message is not None and message.via:
            if message.arrival is not None:
                return envelope_of(message.arrival, None)
            location = message.location
        else:
            found = self._acked.get(agent, message_id)
            if found is None:
                return None
            location = found
        try:
            return envelope_of(self._payloads.read_arrival(location), None)
        except (RelayError, OSError):
            return None  # deleted with its segment, or damaged

    def remember(self, acked: Iterable[Message]) -> None:
        """Keep messages of an agent as parents that are found in memory, after their ack."""
        self._acked.add(acked)

    async def search(self, agent: str, message_id: str) -> Envelope | None:
        """Return what `find` returns, or else the message according to the journal.

        An agent at its rate limit gets nothing from the journal: its message will be rejected.
        """
        found = self.find(agent, message_id)
        if found is not None or agent not in self._state.mailboxes:
            return found
        if len(message_id) > message_id_length_max_chars:
            return None
        now_ms = self._ledger.now_us() // 1000
        if admit_sender(agent, self._state.windows, self._settings(), now_ms).reason is not None:
            return None
        async with self._one_at_a_time:
            events = await asyncio.to_thread(self._histories.find, message_id)
        return _delivered(agent, events)


def _delivered(agent: str, events: list[AnyEvent]) -> Envelope | None:
    """Return the last message among `events` that was delivered to `agent`."""
    arrived: Accepted | Rejected | None = None
    delivered: Accepted | Rejected | None = None
    for event in events:
        if isinstance(event, Accepted | Rejected) and event.endpoint == agent:
            arrived = event
        elif isinstance(event, Leased) and event.endpoint == agent and arrived is not None:
            delivered = arrived
    return None if delivered is None else envelope_of(delivered, None)
