"""The operations of `/v1/connect`. A frame carries one of them, or a list of them.

The order of a connection:

    relay                                agent
    challenge                        →
                                     ←   auth
    welcome, queue_status            →
    message × up to 50 (stored)      →
                                     ←   ack
    … until nothing is stored …
    live                             →
    message                          →
                                     ←   send, ack, nack, signal, fetch
    sent, queue_full, delivery_confirm, signal, messages, error  →

`ref` is a number the agent chooses to know an answer by. Both encodings hold the same fields.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from waypost.policy.bounds import lease_max_messages, number_max, wait_max_s
from waypost.policy.budgets import Budget
from waypost.policy.errors import InvalidMessage
from waypost.wire.envelopes import Envelope, instant
from waypost.wire.identifiers import validate_message_id
from waypost.wire.payloads import Signal
from waypost.wire.results import Rejection

JSON_PROTOCOL = "waypost.json"
MSGPACK_PROTOCOL = "waypost.msgpack"

Ref = Annotated[int, msgspec.Meta(ge=0, le=number_max)]
Ids = Annotated[list[str], msgspec.Meta(max_length=lease_max_messages)]


class FrameOperation(msgspec.Struct, tag_field="op", kw_only=True, omit_defaults=True):
    """One operation, told apart by `op`."""


class AgentOperation(FrameOperation, kw_only=True, forbid_unknown_fields=True):
    """One from an agent: a field nobody knows is a mistake, and said to be one."""


# From the relay


class Challenge(FrameOperation, tag="challenge", kw_only=True):
    """Sign this; see `handshake`."""

    nonce: str


class Welcome(FrameOperation, tag="welcome", kw_only=True):
    """You are `subject`. `token` opens the HTTP interface until `token_expires_at` (ms).

    At most `unconfirmed_max` messages are ahead of their confirmations; frames are at most
    `frame_max_bytes` long and hold at most `operations_max` operations.
    """

    subject: str
    token: str
    token_expires_at: int
    frame_max_bytes: int
    operations_max: int
    unconfirmed_max: int


class QueueStatus(FrameOperation, tag="queue_status", kw_only=True):
    """How many messages were stored for you."""

    pending: int


class Live(FrameOperation, tag="live"):
    """Everything stored has been delivered and confirmed; what follows has just arrived."""


class Message(FrameOperation, tag="message", kw_only=True):
    """One message, to be confirmed with `ack`. `parent` is the id of the message it follows from.

    `was_stored` tells that it waited for you to connect. `tier` is the sender's; 0: not asked for.
    """

    envelope: Envelope
    parent: str | None = None
    was_stored: bool = False
    tier: int = 0


class FetchedMessages(FrameOperation, tag="messages", kw_only=True):
    """The answer to `fetch`."""

    ref: Ref
    messages: list[Message]


class SendResult(FrameOperation, tag="sent", kw_only=True):
    """The answer to `send`: on disk, or refused."""

    ref: Ref
    message_id: str
    delivered_to: int
    rejected: list[Rejection] = []
    retry_after_ms: int = 0
    mailbox_pressure: dict[str, float] = {}


class QueueFull(FrameOperation, tag="queue_full", kw_only=True):
    """What you sent as `ref` was not stored for `recipient`: its mailbox is full."""

    ref: Ref
    recipient: str
    reason: str


class DeliveryConfirm(FrameOperation, tag="delivery_confirm", kw_only=True):
    """`recipient` has confirmed `message_id`; `was_stored` if it had to wait there.

    One with an `id` was kept for you while you were away and wants an `ack` of its own.
    """

    message_id: str
    recipient: str
    was_stored: bool
    id: str | None = None


class Error(FrameOperation, tag="error", kw_only=True):
    """An operation that could not be done, or (`fatal`) the end of the connection."""

    error: str
    reason: str = ""
    ref: Ref | None = None
    retry_after_ms: int = 0
    fatal: bool = False


# From the agent


class Auth(AgentOperation, tag="auth", kw_only=True):
    """`signature` is over `handshake.proof_text`. `receive: pull` means: only what I `fetch`.

    `sealing_key` with `sealing_signature` (over `handshake.sealing_key_text`) is for those who
    want to encrypt to you.
    """

    subject: str
    public_key: str
    signature: str
    receive: Literal["push", "pull"] = "push"
    sealing_key: str | None = None
    sealing_signature: str | None = None


class Parent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The message another follows from, and its budget as it was delivered."""

    id: str
    budget: Budget

    def to_envelope(self) -> Envelope:
        """As much of its envelope as counts for what follows from it. Raises `InvalidMessage`."""
        validate_message_id(self.id)
        return Envelope(
            id=self.id, subject="", sender="", budget=self.budget, created_at=instant(0)
        )


class Send(AgentOperation, tag="send", kw_only=True):
    """Publish. `budget` may only narrow what the relay and `parent` allow."""

    ref: Ref
    subject: str
    payload: msgspec.Raw
    reply_to: str | None = None
    budget: dict[str, Any] | None = None
    parent: Parent | None = None
    message_id: str | None = None


class Ack(AgentOperation, tag="ack", kw_only=True):
    """These are done and may leave the mailbox."""

    ids: Ids


class Nack(AgentOperation, tag="nack", kw_only=True):
    """These were not done: again, not before `delay` seconds have passed."""

    ids: Ids
    delay: Annotated[float, msgspec.Meta(ge=0, le=wait_max_s)] = 0.0


class Fetch(AgentOperation, tag="fetch", kw_only=True):
    """With `receive: pull`: up to `limit` messages, none larger than `max_size_bytes`, waiting up
    to `wait` seconds for the first; with the `tiers` of their senders."""

    ref: Ref
    limit: Annotated[int, msgspec.Meta(ge=1, le=lease_max_messages)] = 50
    max_size_bytes: Annotated[int, msgspec.Meta(ge=0, le=number_max)] | None = None
    wait: Annotated[float, msgspec.Meta(ge=0, le=wait_max_s)] = 0.0
    tiers: bool = False


class SendSignal(AgentOperation, tag="signal", kw_only=True):
    """Tell whoever is connected under `subject` now; never stored."""

    subject: str
    signal: Signal


class Signalled(FrameOperation, tag="signal", kw_only=True):
    """A signal for `subject`, which is you; `sender` is whoever sent it, empty for the relay."""

    subject: str
    signal: Signal
    sender: str = ""


FromRelay = (
    Challenge
    | Welcome
    | QueueStatus
    | Live
    | Message
    | FetchedMessages
    | SendResult
    | QueueFull
    | DeliveryConfirm
    | Signalled
    | Error
)
FromAgent = Auth | Send | Ack | Nack | Fetch | SendSignal


Op = TypeVar("Op", FromRelay, FromAgent)
_Reader = Callable[[bytes | str], Op | list[Op]]


class Codec:
    """How frames of one subprotocol are written and read. Reading raises `msgspec.DecodeError`.

    Payloads stay JSON text inside the relay, whatever the agent speaks: `payload_to_json` turns
    the raw payload of a `Send` into it, `payload_from_json` turns it back.
    """

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.is_text = protocol == JSON_PROTOCOL
        form: Any = msgspec.json if self.is_text else msgspec.msgpack
        self.encode: Callable[[FrameOperation | Sequence[FrameOperation]], bytes] = (
            form.Encoder().encode
        )
        self._read_agent: _Reader[FromAgent] = form.Decoder(FromAgent | list[FromAgent]).decode
        self._read_relay: _Reader[FromRelay] = form.Decoder(FromRelay | list[FromRelay]).decode

    def from_agent(self, frame: bytes | str) -> list[FromAgent]:
        """The operations of a frame that an agent sent."""
        if not self.is_text and isinstance(frame, str):
            raise msgspec.DecodeError("expected a binary frame")
        found = self._read_agent(frame)
        return found if isinstance(found, list) else [found]

    def from_relay(self, frame: bytes | str) -> list[FromRelay]:
        """The operations of a frame that a relay sent."""
        found = self._read_relay(frame)
        return found if isinstance(found, list) else [found]

    def payload_to_json(self, payload: msgspec.Raw) -> object:
        """The payload of a `Send` as something `publish` takes, or `InvalidMessage`."""
        if self.is_text:
            return payload
        try:
            return msgspec.msgpack.decode(payload)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
            raise InvalidMessage(f"payload is not MessagePack: {problem}") from None

    def payload_from_json(self, payload: msgspec.Raw) -> msgspec.Raw:
        """A payload of JSON text as part of a frame, or `InvalidMessage` if it cannot be one."""
        if self.is_text:
            return payload
        try:
            return msgspec.Raw(msgspec.msgpack.encode(msgspec.json.decode(payload)))
        except (msgspec.DecodeError, OverflowError) as problem:
            raise InvalidMessage(f"payload has no form in MessagePack: {problem}") from None


CODECS = {name: Codec(name) for name in (JSON_PROTOCOL, MSGPACK_PROTOCOL)}

CLOSE_NOT_AUTHENTICATED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_TOO_SLOW = 4408
CLOSE_ALREADY_CONNECTED = 4409
CLOSE_TOO_LARGE = 4413
CLOSE_GOING_AWAY = 1001
