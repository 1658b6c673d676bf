"""Messages as the application holds them: to send, and received."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidMessage
from waypost.policy.reserved_names import is_reserved
from waypost.wire import frames
from waypost.wire.envelopes import Envelope
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.results import PublishResult
from waypost.wire.sealing import Card, is_sealed

if TYPE_CHECKING:
    from waypost.client.identity import Identity


class Outgoing(OutgoingMessage, frozen=True, kw_only=True):
    """A message to send; `seal_to` is the card of the only agent that may read it."""

    seal_to: Card | None = None

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
        if self.seal_to is not None and self.seal_to.subject != self.subject:
            raise InvalidMessage(
                f"sealed to {self.seal_to.subject} but sent to {self.subject}, which cannot read it"
            )


class OpenedPayload(NamedTuple):
    """A payload after unsealing, the key that sealed it, and why it could not be opened."""

    payload: Any
    sealed_by: str | None = None
    problem: str | None = None


class Received:
    """The readable part of a received message, shared by both clients.

    `parent` is the id of the message it follows from; `was_stored` is true if it was stored before
    delivery. `tier` is the sender's tier, 1 to 3; 0 if the message was pushed. A sealed payload is
    opened on arrival, and `sealed_by` is the public key that sealed it. If the seal is broken, or
    not for this agent, `problem` has the cause and `payload` is None: untrusted content is never
    exposed.
    """

    def __init__(self, delivered: frames.Message, opened: OpenedPayload) -> None:
        self.delivered = delivered
        self.opened = opened
        self.envelope: Envelope = delivered.envelope
        self.parent: str | None = delivered.parent
        self.was_stored: bool = delivered.was_stored
        self.tier: int = delivered.tier
        self.payload, self.sealed_by, self.problem = opened

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
    def reply_to(self) -> str | None:
        """Return the reply address, if it is not the sender."""
        return self.envelope.reply_to

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


class MessageOwner(Protocol):
    """The agent a message was delivered to."""

    def ack(self, message_id: str) -> None:
        """Acknowledge a message."""

    def nack(self, message_id: str, delay: float) -> None:
        """Return a message to the relay, to be delivered again after `delay` seconds."""

    def release(self, message_id: str) -> None:
        """Record that a message was dropped without ack or nack. Thread-safe."""

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

    `async with message:` acks at the end of the block, or nacks if it raises. The relay does not
    deliver a message again while you hold it; one dropped without ack or nack is delivered again
    after a reconnect.
    """

    def __init__(
        self, owner: MessageOwner, delivered: frames.Message, opened: OpenedPayload
    ) -> None:
        self._owner = owner
        self._is_answered = False
        super().__init__(delivered, opened)

    async def ack(self) -> None:
        """Acknowledge: the relay may delete it. Batched with other operations. Idempotent."""
        self.ack_nowait()

    def ack_nowait(self) -> None:
        """Acknowledge from code that cannot await. On the agent's event loop only."""
        if not self._is_answered:
            self._is_answered = True
            self._owner.ack(self.id)

    async def nack(self, delay: float = 0.0) -> None:
        """Return it to the relay, to be delivered again after `delay` seconds.

        A lost connection discards the delay. Raises `InvalidInput` for an invalid delay.
        """
        self.nack_nowait(delay)

    def nack_nowait(self, delay: float = 0.0) -> None:
        """Return it from code that cannot await. On the agent's event loop only."""
        if not self._is_answered:
            self._owner.nack(self.id, delay)
            self._is_answered = True

    async def reply(
        self,
        payload: object,
        *,
        budget: Budget | Mapping[str, Any] | None = None,
        message_id: str | None = None,
        seal_to: Card | None = None,
    ) -> PublishResult:
        """Send a reply to `reply_to`, else to the sender, within this message's budget.

        Raises as `send` does, and `InvalidMessage` for a reserved sender.
        """
        return await self._owner.send(
            self.reply_address,
            payload,
            parent=self,
            budget=budget,
            message_id=message_id,
            seal_to=seal_to,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.ack_nowait()
        else:
            self.nack_nowait()

    def __del__(self) -> None:
        if not getattr(self, "_is_answered", True):
            self._owner.release(self.id)


def open_payload(
    delivered: Envelope, identity: "Identity", sender_key: str | None
) -> OpenedPayload:
    """Return the payload of a message, unsealed if necessary.

    `sender_key`, if given, is the only key accepted for the seal. An unsealed payload of that
    sender is returned with `sealed_by` None.
    """
    payload = delivered.payload
    if not is_sealed(payload):
        return OpenedPayload(payload)
    from waypost.client.sealing import SealBroken, sealer_of, unseal

    try:
        opened = unseal(
            payload,
            as_=identity,
            sender=delivered.sender,
            message_id=delivered.id,
            sender_key=sender_key,
        )
    except SealBroken as broken:
        return OpenedPayload(None, problem=str(broken) or "the seal is broken")
    return OpenedPayload(opened, sealed_by=sealer_of(payload))
