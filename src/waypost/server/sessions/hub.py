"""The connected agents, and the messages, signals and receipts between them."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Protocol

from msgspec import UNSET, UnsetType

from waypost.policy.bounds import (
    connections_max,
    departures_in_memory_max,
    readers_in_memory_max,
)
from waypost.policy.reserved_names import reject_reserved
from waypost.relay.errors import RelayStopped
from waypost.relay.relay import Draft, Relay
from waypost.server.mailbox_factory import MailboxFactory
from waypost.server.sessions.errors import AlreadyConnected, TooManyConnections
from waypost.server.sessions.receipts import AckedMessage, LiveReceipts, Receipt, Receipts
from waypost.server.sessions.signals import AgentSignals
from waypost.wire.frames import CLOSE_GOING_AWAY, FrameOperation, Signalled
from waypost.wire.payloads import Signal
from waypost.wire.results import NeverConnected, PublishResult

SignalElsewhere = Callable[[str, str, Signal], None]
NoteOf = Callable[[str, str, PublishResult], NeverConnected | UnsetType]

READ_GAP_MAX_US = 60 * 1_000_000
"""As long as the longest wait of one read."""


class AgentSession(Protocol):
    """The session of one connected agent; `since_us` is its start, in µs since the epoch.

    `number` counts sessions from the start of the process; with `shared`, there may be others of
    the same subject. `address` is the peer's. `unconfirmed` counts messages sent and not
    acknowledged, `unsent` the operations in its outbox. `stuck_since_us` is 0 unless the agent
    shows no sign of life. `was_stored` tells whether the message at a queue position waited for the
    agent.
    """

    @property
    def number(self) -> int: ...
    @property
    def subject(self) -> str: ...
    @property
    def receive(self) -> str: ...
    @property
    def shared(self) -> bool: ...
    @property
    def since_us(self) -> int: ...
    @property
    def address(self) -> str: ...
    @property
    def unconfirmed(self) -> int: ...
    @property
    def unsent(self) -> int: ...
    @property
    def stuck_since_us(self) -> int: ...
    def was_stored(self, order: int) -> bool: ...
    def has_sent(self, message_id: str) -> bool: ...
    def send(self, operation: FrameOperation) -> None: ...
    def send_lossy(self, operation: FrameOperation) -> None: ...
    def send_receipts(self, receipts: Sequence[Receipt]) -> bool: ...
    def disconnect(self, reason: str, code: int = CLOSE_GOING_AWAY) -> None: ...


class Readers:
    """The agents that read their inbox over HTTP, and since which position in the journal.

    An agent is there from a read on, as long as the next one begins within a minute of it, or of
    the end of the wait that it asked for. A message waited for its recipient if it is older than
    the last such time without a gap. In memory only: after a restart, every message that is left
    has waited.
    """

    def __init__(self) -> None:
        self._there: OrderedDict[str, tuple[int, int, int]] = OrderedDict()

    def note_read(self, subject: str, seq: int, now_us: int, wait_s: float = 0.0) -> None:
        """Record that `subject` reads now, at `seq`, and waits up to `wait_s` for a message."""
        since, until_us, _ = self._there.pop(subject, (seq, 0, 0))
        if now_us > until_us:
            since = seq
        until_us = max(until_us, now_us + round(wait_s * 1e6) + READ_GAP_MAX_US)
        self._there[subject] = (since, until_us, now_us)
        if len(self._there) > readers_in_memory_max:
            self._there.popitem(last=False)

    def last_read_us(self, subject: str) -> int | None:
        """Return when `subject` last began to read; None if that is unknown."""
        there = self._there.get(subject)
        return None if there is None else there[2]

    def was_stored(self, subject: str, order: int) -> bool:
        """Return whether a message that `subject` has read waited for it."""
        there = self._there.get(subject)
        return there is None or order <= there[0]


class Hub:
    """The agents connected to one relay. `stopping` is true once it disconnects all of them.

    A subject has one session, or several that share its mailbox.
    """

    def __init__(self, relay: Relay, mailboxes: MailboxFactory) -> None:
        self._relay = relay
        self._mailboxes = mailboxes
        self._sessions: dict[AgentSession, None] = {}
        self._by_subject: dict[str, list[AgentSession]] = {}
        self.receipts = Receipts(relay, self._by_subject.__contains__)
        self._readers = Readers()
        self._emptied = asyncio.Event()
        self._signals = AgentSignals(relay)
        self._left_us: OrderedDict[str, int] = OrderedDict()
        self.note_of: NoteOf = lambda sender, subject, result: UNSET
        """Returns what a sender may know about a recipient that has never connected."""
        self._signal_elsewhere: SignalElsewhere = lambda sender, subject, signal: None
        self._handshakes = 0
        self.stopping = False
        self._on_leave: list[Callable[[str], None]] = []
        self.sessions_max = connections_max
        """Set below the number of connections, so that some are left for other callers."""

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def signals(self) -> Mapping[str, int]:
        """Signals of agents since the start, by outcome."""
        return self._signals.counts

    def receives_pushes(self, subject: str) -> bool:
        """Return whether the agent of `subject` is connected and gets all its messages pushed.

        A stuck agent gets none: another reader may have them.
        """
        sessions = self._by_subject.get(subject, ())
        return any(
            one.receive == "push" and not one.shared and not one.stuck_since_us for one in sessions
        )

    def is_connected(self, subject: str) -> bool:
        """Return whether the agent of `subject` is connected."""
        return subject in self._by_subject

    def last_seen_us(self, subject: str) -> int | None:
        """Return when an agent last disconnected or read over HTTP; None if that is unknown."""
        times = self._left_us.get(subject), self._readers.last_read_us(subject)
        return max((one for one in times if one is not None), default=None)

    def connected(self) -> Sequence[AgentSession]:
        """Return the sessions, in the order in which they were added."""
        return list(self._sessions)

    def is_stuck(self, subject: str) -> bool:
        """Return whether a connection of an agent shows no sign of life."""
        return any(one.stuck_since_us for one in self._by_subject.get(subject, ()))

    def stuck_count(self) -> int:
        """Return the number of connected agents without a sign of life."""
        return sum(1 for one in self._sessions if one.stuck_since_us)

    @contextmanager
    def handshake(self) -> Iterator[None]:
        """Count a connection that is not authenticated yet. Raises `TooManyConnections`."""
        if self._handshakes >= connections_max:
            raise TooManyConnections(connections_max)
        self._handshakes += 1
        try:
            yield
        finally:
            self._handshakes -= 1

    def add(self, session: AgentSession) -> None:
        """Add a session. Raises `AlreadyConnected` or `TooManyConnections`."""
        others = self._by_subject.get(session.subject)
        if others and not (session.shared and others[0].shared):
            raise AlreadyConnected(session.subject, shared=others[0].shared)
        bound = min(connections_max, self.sessions_max)
        if others:
            bound //= 2  # further workers of pools leave the rest to other agents
        if len(self._sessions) >= bound:
            raise TooManyConnections(bound)
        self._mailboxes.open_for(session.subject)
        self._sessions[session] = None
        self._by_subject.setdefault(session.subject, []).append(session)

    def remove(self, session: AgentSession) -> None:
        """Remove a session; no other of the same subject is affected."""
        if session not in self._sessions:
            return
        del self._sessions[session]
        others = self._by_subject[session.subject]
        others.remove(session)
        if not others:
            del self._by_subject[session.subject]
            self._note_departure(session.subject)
            for callback in self._on_leave:
                callback(session.subject)
        if not self._sessions:
            self._emptied.set()

    def on_leave(self, callback: Callable[[str], None]) -> None:
        """Call `callback(subject)` whenever an agent has no connection any more."""
        self._on_leave.append(callback)

    async def wait_until_empty(self) -> None:
        """Wait until all agents have disconnected."""
        while self._sessions:
            self._emptied.clear()
            await self._emptied.wait()

    def _note_departure(self, subject: str) -> None:
        """Remember since when an agent is away, unless the relay is closed."""
        self._left_us.pop(subject, None)
        with suppress(RelayStopped):
            self._left_us[subject] = self._relay.now_us()
        if len(self._left_us) > departures_in_memory_max:
            self._left_us.popitem(last=False)

    def publish(self, draft: Draft) -> PublishResult:
        """Publish a message of an agent; it is on disk once `relay.durable()` is done."""
        reject_reserved(draft.subject, draft.reply_to)
        return self._relay.submit(draft)

    def signal(
        self, sender: str, subject: str, signal: Signal, *, is_carried: bool = False
    ) -> None:
        """Send a signal to those agents of a subject or pattern that are connected.

        All workers of a pool get it. `is_carried`: it comes from the partition of its sender.
        Raises as `AgentSignals.admit`.
        """
        for recipient in self._signals.admit(sender, subject, signal):
            for session in self._by_subject.get(recipient, ()):
                session.send_lossy(Signalled(subject=recipient, signal=signal, sender=sender))
        if not is_carried:
            self._signal_elsewhere(sender, subject, signal)

    def forward_signals(self, forward: SignalElsewhere) -> None:
        """Send admitted signals to the agents of other partitions with `forward`, too."""
        self._signal_elsewhere = forward

    def note_read(self, subject: str, wait_s: float = 0.0) -> None:
        """Record that the agent of `subject` reads its inbox over HTTP now."""
        relay = self._relay
        self._readers.note_read(subject, relay.inspect().journal().seq, relay.now_us(), wait_s)

    def confirm(self, recipient: str, acked: Iterable[tuple[str, str, int]]) -> None:
        """Create receipts for messages acknowledged over HTTP: id, sender and queue position."""
        session = next(iter(self._by_subject.get(recipient, ())), None)

        def was_stored(order: int) -> bool:
            if session is not None:
                return session.was_stored(order)
            return self._readers.was_stored(recipient, order)

        stored = [AckedMessage(one, sender, was_stored(order)) for one, sender, order in acked]
        receipts = self.receipts.create(recipient, stored)
        waiting = self._relay.durable()
        if waiting is None:
            self.send_receipts(receipts)
        else:
            waiting.add_done_callback(partial(self._send_once_durable, receipts))

    def send_receipts(self, receipts: LiveReceipts) -> None:
        """Send durable receipts; store those of senders that have disconnected meanwhile, or that
        acknowledge none."""
        by_sender: dict[str, list[Receipt]] = {}
        for sender, receipt in receipts:
            by_sender.setdefault(sender, []).append(receipt)
        for sender, together in by_sender.items():
            sessions = self._by_subject.get(sender)
            if sessions is None:
                self.receipts.store(sender, together)
            elif len(sessions) == 1:
                self._send_or_store(sessions[0], together)
            else:
                for session, own in _by_worker(sessions, together).items():
                    self._send_or_store(session, own)

    def _send_or_store(self, session: AgentSession, receipts: list[Receipt]) -> None:
        if not session.send_receipts(receipts):
            self.receipts.store(session.subject, receipts)

    def disconnect(self, subject: str, code: int, reason: str) -> bool:
        """Disconnect the agent of `subject`; return whether it was connected."""
        sessions = list(self._by_subject.get(subject, ()))
        for session in sessions:
            session.disconnect(reason, code)
        return bool(sessions)

    def disconnect_all(self, reason: str) -> None:
        """Disconnect all agents, because the relay stops."""
        self.stopping = True
        for session in list(self._sessions):
            session.disconnect(reason)

    def _send_once_durable(self, receipts: LiveReceipts, durable: "asyncio.Future[None]") -> None:
        if not durable.cancelled() and durable.exception() is None:
            self.send_receipts(receipts)


def _by_worker(
    workers: Sequence[AgentSession], receipts: Iterable[Receipt]
) -> dict[AgentSession, list[Receipt]]:
    """Return the receipts by the worker that sent the message, or the first if none is known."""
    found: dict[AgentSession, list[Receipt]] = {}
    for receipt in receipts:
        shares: dict[AgentSession, Receipt] = {}
        for pair in receipt.confirmed:
            sender = next((one for one in workers if one.has_sent(pair[0])), workers[0])
            share = shares.setdefault(sender, Receipt(receipt.recipient, []))
            share.confirmed.append(pair)
        for sender, share in shares.items():
            found.setdefault(sender, []).append(share)
    return found
