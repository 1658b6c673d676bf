"""A message as the application holds it."""

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidMessage
from waypost.policy.reserved_names import is_reserved
from waypost.wire import frames
from waypost.wire.envelopes import Envelope
from waypost.wire.results import PublishResult
from waypost.wire.sealing import Card, is_sealed

if TYPE_CHECKING:
    from waypost.client.aio import Agent
    from waypost.client.identity import Identity


class Opened(NamedTuple):
    """What a message says, the key it was sealed with, and what is wrong with it."""

    payload: Any
    sealed_by: str | None = None
    problem: str | None = None


class Received:
    """What there is to read about a message, in either client.

    `parent` is the id of the message it follows from; `was_stored` tells that it had to wait.
    `tier` says how well you and the sender know each other, 1 to 3; 0 where it was pushed.
    A sealed payload is opened on arrival, and `sealed_by` is the key of whoever sealed it. If the
    seal is broken, or not for this agent, `problem` says so and `payload` is None: what cannot be
    trusted is not shown.
    """

    def __init__(self, delivered: frames.Message, opened: Opened) -> None:
        self.delivered = delivered
        self.opened = opened
        self.envelope: Envelope = delivered.envelope
        self.parent: str | None = delivered.parent
        self.was_stored: bool = delivered.was_stored
        self.tier: int = delivered.tier
        self.payload, self.sealed_by, self.problem = opened

    @property
    def id(self) -> str:
        """The same at every delivery."""
        return self.envelope.id

    @property
    def subject(self) -> str:
        """What it was published to."""
        return self.envelope.subject

    @property
    def sender(self) -> str:
        """Who sent it; the relay vouches for it."""
        return self.envelope.sender

    @property
    def reply_to(self) -> str | None:
        """Where answers should go, if not to the sender."""
        return self.envelope.reply_to

    @property
    def budget(self) -> Budget:
        """What messages that follow from this one may still do."""
        return self.envelope.budget

    @property
    def created_at(self) -> datetime:
        """When the relay took it."""
        return self.envelope.created_at

    @property
    def reply_address(self) -> str:
        """Where a reply goes. Raises `InvalidMessage` when there is nobody to reply to."""
        address = self.reply_to or self.sender
        if is_reserved(address):
            raise InvalidMessage(f"{self.id} came from {address}, who takes no replies")
        return address

    def __repr__(self) -> str:
        return f"<Message {self.id} from {self.sender}>"


class Message(Received):
    """One message, to be answered with `ack` or `nack`.

    `async with message:` acks at the end of the block, or nacks if it raises. While you hold a
    message it is yours; one that is dropped without an answer comes again after a reconnect.
    """

    def __init__(self, agent: "Agent", delivered: frames.Message, opened: Opened) -> None:
        self._agent = agent
        self._answered = False
        super().__init__(delivered, opened)

    async def ack(self) -> None:
        """Done: it may leave the relay. Written soon, with other things; again changes nothing."""
        self.ack_nowait()

    def ack_nowait(self) -> None:
        """`ack`, for code that cannot await. On the agent's event loop only."""
        if not self._answered:
            self._answered = True
            self._agent.confirm(self.id)

    async def nack(self, delay: float = 0.0) -> None:
        """Not done: it comes again, not before `delay` seconds have passed.

        The delay is forgotten if the connection is lost meanwhile. Raises `InvalidMessage` for a
        delay that is none.
        """
        self.nack_nowait(delay)

    def nack_nowait(self, delay: float = 0.0) -> None:
        """`nack`, for code that cannot await. On the agent's event loop only."""
        if not self._answered:
            self._agent.give_back(self.id, delay)
            self._answered = True

    async def reply(
        self,
        payload: object,
        *,
        budget: Budget | Mapping[str, Any] | None = None,
        message_id: str | None = None,
        seal_to: Card | None = None,
    ) -> PublishResult:
        """Send an answer to `reply_to`, else to the sender, out of this message's budget.

        Raises as `send` does, and `InvalidMessage` when there is nobody to reply to.
        """
        return await self._agent.send(
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
        if not getattr(self, "_answered", True):
            self._agent.let_go(self.id)


def open_payload(delivered: Envelope, identity: "Identity", sender_key: str | None) -> Opened:
    """The content of a message, unsealed if need be.

    `sender_key`, if there is one, is the only key that may have sealed it; what came from there
    unsealed is shown as what it is, with `sealed_by` None.
    """
    payload = delivered.payload
    if not is_sealed(payload):
        return Opened(payload)
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
        return Opened(None, problem=str(broken) or "the seal is broken")
    return Opened(opened, sealed_by=sealer_of(payload))
