"""Messages as the application holds them: to send, and received."""

import logging
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import msgspec

from waypost.policy.bounds import wait_max_s
from waypost.policy.budgets import Budget
from waypost.policy.errors import AccessDenied, InvalidMessage
from waypost.policy.reserved_names import RELAY, is_reserved
from waypost.wire import frames
from waypost.wire.envelopes import Envelope, instant
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.payloads import EvictionNotice
from waypost.wire.printable import error_text
from waypost.wire.results import PublishResult, denied_result
from waypost.wire.sealing import Card, Circumstances, circumstances_of, is_sealed, sealed_of

if TYPE_CHECKING:
    from waypost.client.identity import Identity
    from waypost.client.seal_memory import SealMemory


log = logging.getLogger("waypost.client")


class Outgoing(OutgoingMessage, frozen=True, kw_only=True):
    """A message to send; `seal_to` is the card of the only agent that may read it.

    `reply_within` is how many seconds its sender waits for a reply, 0 if it does not.
    """

    seal_to: Card | None = None
    reply_within: float = 0.0

    @classmethod
    def of(cls, fields: "Outgoing | Mapping[str, Any]") -> "Outgoing":
        """Return a message from a mapping of the parameters of `send`. Raises `InvalidMessage`."""
        if isinstance(fields, Outgoing):
            return fields
        try:
            return Outgoing(**fields)
        except TypeError as problem:
            raise InvalidMessage(f"not a message to send: {problem}") from None

    def check(self) -> None:
        """Check addresses, id and seal. Raises `InvalidSubject` or `InvalidMessage`."""
        OutgoingMessage.check(self)
        if not 0 <= self.reply_within <= wait_max_s:
            raise InvalidMessage(
                f"reply_within must be 0 to {wait_max_s:,} seconds, not {self.reply_within!r:.40}"
            )
        if self.seal_to is not None and self.seal_to.subject != self.subject:
            raise InvalidMessage(
                f"sealed to {self.seal_to.subject} but sent to {self.subject}, which cannot read it"
            )


SEALED_EARLIER_MAX_MS = 3_600_000
SEALED_LATER_MAX_MS = 900_000
"""How much earlier or later than its acceptance by the relay a message may be sealed: a send may
wait for a connection, and clocks differ."""


class OpenedPayload(NamedTuple):
    """A payload after unsealing, the key that sealed it, and why it could not be opened.

    `sealed_at` is the sender's time; None for a seal of version 1. `seal` stands for the seal in
    the memory of opened ones.
    """

    payload: Any
    sealed_by: str | None = None
    problem: str | None = None
    sealed_at: datetime | None = None
    seal: str | None = None


class Received:
    """The readable part of a received message, shared by both clients.

    `parent` is the id of the message it follows from, `thread` that of the conversation;
    `was_stored` is true if it waited for the agent to be there. `tier` is the sender's tier, 1 to
    3; 0 if the message was pushed.

    A sealed payload is opened on arrival, and `sealed_by` is the public key that sealed it, at
    `sealed_at` by the sender's clock (None for a seal of version 1, which does not protect reply
    address, parent and time). If the seal is broken, or not for this agent, or missing although
    the sender is trusted, `problem` has the cause and `payload` is None: untrusted content is never
    exposed.
    """

    def __init__(self, delivered: frames.Message, opened: OpenedPayload) -> None:
        self.delivered = delivered
        self.opened = opened
        self.envelope: Envelope = delivered.envelope
        self.parent: str | None = delivered.parent
        self.was_stored: bool = delivered.was_stored
        self.tier: int = delivered.tier
        self.payload, self.sealed_by, self.problem, self.sealed_at, _ = opened

    @property
    def id(self) -> str:
        """Return the message id, the same at every delivery."""
        return self.envelope.id

    @property
    def subject(self) -> str:
        """Return the subject or pattern it was published to."""
        return self.envelope.subject

    @property
    def sender(self) -> str:
        """Return the sender, as authenticated by the relay."""
        return self.envelope.sender

    @property
    def eviction(self) -> EvictionNotice | None:
        """Return the relay's notice that messages of this agent were evicted, if this is one."""
        if self.sender != RELAY:
            return None
        try:
            return msgspec.convert(self.payload, EvictionNotice)
        except msgspec.ValidationError:
            return None

    @property
    def reply_to(self) -> str | None:
        """Return the reply address, if it is not the sender."""
        return self.envelope.reply_to

    @property
    def thread(self) -> str:
        """Return the id of the conversation, the same for all messages that follow from it."""
        return self.envelope.thread or self.envelope.id

    @property
    def attempt(self) -> int:
        """Return the number of this delivery, from 1; more than 1 if earlier ones failed."""
        return self.envelope.attempt

    @property
    def budget(self) -> Budget:
        """Return the budget left for messages that follow from this one."""
        return self.envelope.budget

    @property
    def created_at(self) -> datetime:
        """Return when the relay accepted it."""
        return self.envelope.created_at

    @property
    def reply_address(self) -> str:
        """Return the address for a reply. Raises `InvalidMessage` for a reserved sender."""
        address = self.reply_to or self.sender
        if is_reserved(address):
            raise InvalidMessage(f"{self.id} came from {address}, which accepts no replies")
        return address

    def __repr__(self) -> str:
        return f"<Message {self.id} from {self.sender}>"


class MessageHolder(Protocol):
    """The messages that the application of an agent has to ack or nack."""

    def ack(self, message_id: str) -> None:
        """Acknowledge a message."""

    def mark_opened(self, seal: str) -> None:
        """Record that a sealed message was acknowledged: its seal does not open again."""

    def nack(self, message_id: str, delay: float, error: str, *, release: bool) -> None:
        """Return a message to the relay, to be delivered again after `delay` seconds."""

    def extend(self, message_id: str, seconds: float) -> None:
        """Keep a message for `seconds` more."""

    def begin(self, message_id: str) -> None:
        """Keep a message from now on."""

    def end(self, message_id: str) -> None:
        """Keep a message no longer."""

    def release(self, message_id: str) -> None:
        """Record that a message was dropped without ack or nack. Thread-safe."""


class MessageOwner(Protocol):
    """The agent a message was delivered to."""

    @property
    def subject(self) -> str:
        """Return the subject of the agent."""

    @property
    def held(self) -> MessageHolder:
        """Return the messages that its application has to ack or nack."""

    async def send(
        self,
        subject: str,
        payload: object,
        *,
        parent: "Message | None" = None,
        budget: Budget | Mapping[str, Any] | None = None,
        message_id: str | None = None,
        seal_to: Card | None = None,
    ) -> PublishResult:
        """Send a message."""


class Message(Received):
    """A received message: call `ack` when it is processed, `nack` to have it delivered again.

    `async with message:` keeps it while the block runs, acks it at the end, or nacks it with the
    error if the block raises. Without a block, ack, nack or `extend` within the relay's lease
    timeout, or the relay delivers it again. An ack of any other message counts, too: those that
    wait behind it do not run out.
    """

    def __init__(
        self, owner: MessageOwner, delivered: frames.Message, opened: OpenedPayload
    ) -> None:
        self._owner = owner
        self._is_answered = self._is_kept = False
        super().__init__(delivered, opened)

    async def ack(self) -> None:
        """Acknowledge: the relay may delete it. Batched with other operations. Idempotent."""
        self.ack_nowait()

    def ack_nowait(self) -> None:
        """Acknowledge from code that cannot await. On the agent's event loop only."""
        if not self._is_answered:
            self._is_answered = True
            if self._is_kept:
                self._owner.held.end(self.id)
            if self.opened.seal is not None:
                self._owner.held.mark_opened(self.opened.seal)
            self._owner.held.ack(self.id)

    async def nack(self, delay: float = 0.0, error: str | BaseException = "") -> None:
        """Return it to the relay, to be delivered again after `delay` seconds at the earliest.

        The delivery counts as failed: the next ones come later and later, and after the last that
        the relay allows, the message is a dead letter that names the `error`, a text or an
        exception. A lost connection discards the delay and the error.
        Raises `InvalidInput` for an invalid delay or error.
        """
        self.nack_nowait(delay, error)

    def nack_nowait(
        self, delay: float = 0.0, error: str | BaseException = "", *, release: bool = False
    ) -> None:
        """Return it from code that cannot await. On the agent's event loop only.

        With `release`, it was not processed, and the delivery does not count as failed.
        """
        if not self._is_answered:
            self._owner.held.nack(self.id, delay, error_text(error), release=release)
            self._is_answered = True
            if self._is_kept:
                self._owner.held.end(self.id)

    async def extend(self, seconds: float) -> None:
        """Keep it for `seconds` more, without an ack; a lost connection discards that.

        Raises `InvalidInput` for less than 0 or more than a day.
        """
        if not self._is_answered:
            self._owner.held.extend(self.id, seconds)

    async def reply(
        self,
        payload: object,
        *,
        budget: Budget | Mapping[str, Any] | None = None,
        message_id: str | None = None,
        seal_to: Card | None = None,
    ) -> PublishResult:
        """Send a reply to `reply_to`, else to the sender, within this message's budget.

        Rejections are in the result, also of a reply that access rules deny. Raises otherwise as
        `send` does, and `InvalidMessage` for a reserved sender.
        """
        try:
            return await self._owner.send(
                self.reply_address,
                payload,
                parent=self,
                budget=budget,
                message_id=message_id,
                seal_to=seal_to,
            )
        except AccessDenied as denied:
            return denied_result(str(denied))

    def keep(self) -> None:
        """Keep it until it is acked or nacked. On the agent's event loop only."""
        if not self._is_answered:
            self._is_kept = True
            self._owner.held.begin(self.id)

    async def __aenter__(self) -> Self:
        self.keep()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, _: object
    ) -> None:
        if problem is None:
            self.ack_nowait()
        elif isinstance(problem, Exception):
            where = (self._owner.subject, self.id, self.attempt)
            log.warning("%s: message %s failed (attempt %d)", *where, exc_info=problem)
            self.nack_nowait(error=problem)
        else:  # cancelled: this consumer ends, which is no error of the message
            self.nack_nowait()

    def __del__(self) -> None:
        if not getattr(self, "_is_answered", True):
            self._owner.held.release(self.id)


def open_payload(
    delivered: frames.Message,
    identity: "Identity",
    memory: "SealMemory",
    *,
    clock: Callable[[], int],
    max_age_s: float,
) -> OpenedPayload:
    """Return the payload of a message, unsealed if necessary, or why it cannot be opened.

    A trusted sender must seal, and every sender must seal with the key that `memory` has of it.
    `clock` returns milliseconds since the epoch.
    """
    envelope = delivered.envelope
    payload = envelope.payload
    is_pinned = memory.is_pinned(envelope.sender)
    if not is_sealed(payload):
        if is_pinned:
            return _rejected(f"not sealed, although {envelope.sender} is trusted and should seal")
        return OpenedPayload(payload)
    from waypost.client.seal_memory import seal_digest
    from waypost.client.sealing import SealBroken, unseal

    try:
        opened = unseal(payload, as_=identity, sender=envelope.sender, message_id=envelope.id)
    except SealBroken as broken:
        return _rejected(str(broken) or "the seal is broken")
    sealed = sealed_of(payload)
    seal = seal_digest(envelope.sender, envelope.id, sealed.ephemeral)
    circumstances = circumstances_of(sealed)
    problem = memory.check_key(envelope.sender, sealed.by)
    if problem is None and memory.is_opened(seal):
        problem = "opened and acknowledged before: the relay has delivered it again"
    if problem is None and circumstances is not None:
        problem = _circumstances_problem(circumstances, delivered, clock(), max_age_s)
    elif problem is None and is_pinned:
        problem = "sealed by version 1, which a trusted sender should not use any more"
    if problem is not None:
        return _rejected(problem)
    sealed_at = None if circumstances is None else instant(1000 * circumstances.sealed_at)
    return OpenedPayload(opened, sealed_by=sealed.by, sealed_at=sealed_at, seal=seal)


def _circumstances_problem(
    sealed: Circumstances, delivered: frames.Message, now_ms: int, max_age_s: float
) -> str | None:
    """Return what the relay has changed about a message since it was sealed, or None."""
    envelope = delivered.envelope
    if sealed.reply_to != envelope.reply_to:
        return f"sealed for replies to {sealed.reply_to}, but delivered for {envelope.reply_to}"
    if delivered.parent not in (None, sealed.parent):  # a relay may have forgotten the parent
        return f"sealed as following {sealed.parent}, but delivered as following {delivered.parent}"
    accepted_ms = round(envelope.created_at.timestamp() * 1000)
    waited_ms = accepted_ms - sealed.sealed_at
    if not -SEALED_LATER_MAX_MS <= waited_ms <= SEALED_EARLIER_MAX_MS:
        return (
            f"sealed {waited_ms // 1000:,} s before the relay claims to have accepted it: a clock"
            " is wrong, or the relay has changed the time"
        )
    age_ms = now_ms - sealed.sealed_at
    if age_ms > 1000 * max_age_s:
        return f"sealed {age_ms // 86_400_000:,} days ago, which sealed_max_age_s does not allow"
    return None


def _rejected(problem: str) -> OpenedPayload:
    return OpenedPayload(None, problem=problem)
