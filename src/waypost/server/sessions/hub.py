"""Who is connected, and what passes between those who are."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Protocol

from waypost.policy.bounds import connections_max
from waypost.policy.errors import AccessDenied
from waypost.policy.reserved_names import reject_reserved
from waypost.policy.subjects import validate_subject
from waypost.relay.delivery.drafts import Draft
from waypost.relay.relay import Relay
from waypost.relay.state.mailbox import Message
from waypost.server.mailbox_factory import Mailboxes
from waypost.server.sessions.errors import AlreadyConnected, TooManyConnections
from waypost.server.sessions.receipts import Confirmations, Confirmed, Told
from waypost.wire.frames import FrameOperation, Signalled
from waypost.wire.payloads import Signal
from waypost.wire.results import PublishResult


class Present(Protocol):
    """One connected agent, as the hub sees it; `since_us` is µs since the epoch.

    `address` is where it is connected from. `unconfirmed` messages were sent to it; `unsent`
    operations it has yet to read.
    """

    @property
    def subject(self) -> str: ...
    @property
    def receive(self) -> str: ...
    @property
    def since_us(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def unconfirmed(self) -> int: ...
    @property
    def unsent(self) -> int: ...
    def tell(self, operation: FrameOperation) -> None: ...
    def tell_lossy(self, operation: FrameOperation) -> None: ...
    def dismiss(self, reason: str) -> None: ...


class Hub:
    """The agents connected to one relay."""

    def __init__(self, relay: Relay, mailboxes: Mailboxes) -> None:
        self._relay = relay
        self._mailboxes = mailboxes
        self._present: dict[str, Present] = {}
        self.confirmations = Confirmations(relay, self._present.__contains__)
        self._emptied = asyncio.Event()
        self._arriving = 0

    def __len__(self) -> int:
        return len(self._present)

    def is_live(self, subject: str) -> bool:
        """Whether mail of `subject` goes out by itself now: its agent is connected for it."""
        agent = self._present.get(subject)
        return agent is not None and agent.receive == "push"

    def is_connected(self, subject: str) -> bool:
        """Return whether the agent of `subject` is connected."""
        return subject in self._present

    def connected(self) -> Sequence[Present]:
        """Connected agents, in the order in which they came."""
        return list(self._present.values())

    @contextmanager
    def arrival(self) -> Iterator[None]:
        """Somebody is about to say who they are. Raises `TooManyConnections`."""
        if self._arriving >= connections_max:
            raise TooManyConnections(connections_max)
        self._arriving += 1
        try:
            yield
        finally:
            self._arriving -= 1

    def enter(self, agent: Present) -> None:
        """An agent is here. Raises `AlreadyConnected` or `TooManyConnections`."""
        if agent.subject in self._present:
            raise AlreadyConnected(agent.subject)
        if len(self._present) >= connections_max:
            raise TooManyConnections(connections_max)
        self._mailboxes.open_for(agent.subject)
        self._present[agent.subject] = agent

    def leave(self, agent: Present) -> None:
        """An agent went away."""
        if self._present.get(agent.subject) is agent:
            del self._present[agent.subject]
            if not self._present:
                self._emptied.set()

    async def empty(self) -> None:
        """Wait until nobody is connected."""
        while self._present:
            self._emptied.clear()
            await self._emptied.wait()

    def publish(self, draft: Draft) -> PublishResult:
        """Decide about a message from an agent; on disk once `relay.durable()` is done."""
        reject_reserved(draft.subject, draft.reply_to)
        return self._relay.submit(draft)

    def signal(self, sender: str, subject: str, signal: Signal) -> None:
        """Tell the agent connected as `subject`, if it is. Raises as `publish` does."""
        validate_subject(subject)
        reject_reserved(subject)
        if not self._relay.access.check_access(sender, subject).allowed:
            raise AccessDenied(sender, subject)
        agent = self._present.get(subject)
        if agent is not None:
            agent.tell_lossy(Signalled(subject=subject, signal=signal, sender=sender))

    def confirm(self, recipient: str, acked: Sequence[Message]) -> None:
        """Messages leased over HTTP are done; their senders learn that they had to wait."""
        confirmed = [Confirmed(one.id, one.sender, was_stored=True) for one in acked]
        told = self.confirmations.note(recipient, confirmed)
        waiting = self._relay.durable()
        if waiting is None:
            self.tell(told)
        else:
            waiting.add_done_callback(partial(self._tell_once_durable, told))

    def tell(self, told: Told) -> None:
        """Confirmations that are on disk, to whoever is here; for the others they are kept now."""
        away: dict[str, list[Confirmed]] = {}
        for sender, operation in told:
            agent = self._present.get(sender)
            if agent is not None:
                agent.tell(operation)
            else:
                one = Confirmed(operation.message_id, sender, operation.was_stored)
                away.setdefault(operation.recipient, []).append(one)
        for recipient, confirmed in away.items():
            self.confirmations.note(recipient, confirmed)

    def dismiss_all(self, reason: str) -> None:
        """Everyone has to go."""
        for agent in list(self._present.values()):
            agent.dismiss(reason)

    def _tell_once_durable(self, told: Told, durable: "asyncio.Future[None]") -> None:
        if not durable.cancelled() and durable.exception() is None:
            self.tell(told)
