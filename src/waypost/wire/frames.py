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
                                     ←   send, ack, nack, extend, signal, fetch, scheduled, cancel,
                                         set_card
    sent, sent_many, queue_full, delivery_confirm, delivery_confirms, request_failed, signal,
    messages, scheduled, cancelled, card_set, error  →

`ref` is a number chosen by the agent to match an answer to its operation. Both encodings hold the
same fields.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from waypost.policy.bounds import (
    lease_extension_max_s,
    lease_max_messages,
    number_max,
    scheduled_max_messages,
    wait_max_s,
)
from waypost.policy.budgets import Budget, BudgetCut
from waypost.wire.cards import AgentCard
from waypost.wire.envelopes import Envelope
from waypost.wire.payloads import Signal
from waypost.wire.results import NeverConnected, Rejection
from waypost.wire.scheduled import ScheduledMessage

JSON_PROTOCOL = "waypost.json"
MSGPACK_PROTOCOL = "waypost.msgpack"

Ref = Annotated[int, msgspec.Meta(ge=0, le=number_max)]
Ids = Annotated[list[str], msgspec.Meta(max_length=lease_max_messages)]
Seconds = Annotated[float, msgspec.Meta(ge=0, le=wait_max_s)]
Instant = Annotated[datetime, msgspec.Meta(tz=True)]


class FrameOperation(msgspec.Struct, tag_field="op", kw_only=True, omit_defaults=True):
    """One operation, distinguished by `op`."""


class AgentOperation(FrameOperation, kw_only=True, forbid_unknown_fields=True):
    """An operation of an agent. Unknown fields are rejected."""


# From the relay


class Challenge(FrameOperation, tag="challenge", kw_only=True):
    """A nonce to sign; see `handshake`. `batches`: the relay can send `sent_many` and
    `delivery_confirms`."""

    nonce: str
    batches: bool = False


class Welcome(FrameOperation, tag="welcome", kw_only=True):
    """Authenticated as `subject`. `token` is valid for HTTP until `token_expires_at` (ms).

    At most `unconfirmed_max` messages run ahead of their acks; frames are at most
    `frame_max_bytes` long and hold at most `operations_max` operations. An agent with unacked
    messages acks, nacks or extends one within `lease_timeout_ms`; relays without that leave it out.
    """

    subject: str
    token: str
    token_expires_at: int
    frame_max_bytes: int
    operations_max: int
    unconfirmed_max: int
    lease_timeout_ms: int = 0


class QueueStatus(FrameOperation, tag="queue_status", kw_only=True):
    """The number of messages stored for the agent."""

    pending: int


class Live(FrameOperation, tag="live"):
    """All stored messages are delivered and acked; new messages follow."""


class Message(FrameOperation, tag="message", kw_only=True):
    """A message to `ack`. `parent` is the id of the message it follows from.

    `was_stored` is true if it waited for the agent to be there. `tier` is the sender's; 0 if it was
    not requested.
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
    """The answer to `send`: stored on disk, or rejected. The fields are those of a publish."""

    ref: Ref
    message_id: str
    delivered_to: int
    rejected: list[Rejection] = []
    retry_after_ms: int = 0
    mailbox_pressure: dict[str, float] = {}
    budget_cut: BudgetCut | msgspec.UnsetType = msgspec.UNSET
    never_connected: NeverConnected | msgspec.UnsetType = msgspec.UNSET


class SentMany(FrameOperation, tag="sent_many", kw_only=True):
    """The answer to all sends from `ref` to `last_ref`: each is stored in `delivered_to` mailboxes,
    under the id that its agent chose, and nothing else is to be said about it."""

    ref: Ref
    last_ref: Ref
    delivered_to: int


class ScheduledResult(FrameOperation, tag="scheduled", kw_only=True):
    """The answer to `scheduled`: those due first at the beginning; `more`: there are others."""

    ref: Ref
    messages: list[ScheduledMessage]
    more: bool = False


class CancelResult(FrameOperation, tag="cancelled", kw_only=True):
    """The answer to `cancel`: the ids of the messages that were not due yet."""

    ref: Ref
    ids: list[str]


class CardSet(FrameOperation, tag="card_set", kw_only=True):
    """The answer to `set_card`: the relay keeps the card."""

    ref: Ref


Answer = ScheduledResult | CancelResult | CardSet
"""The answers to operations that are neither a send nor a fetch."""


class QueueFull(FrameOperation, tag="queue_full", kw_only=True):
    """The message sent as `ref` was not stored for `recipient`: its mailbox is full.

    There is one for each full recipient of a pattern.
    """

    ref: Ref
    recipient: str
    reason: str
    message_id: str = ""


class DeliveryConfirm(FrameOperation, tag="delivery_confirm", kw_only=True):
    """`recipient` has acked `message_id`; `was_stored` is true if the message waited for it.

    One with an `id` needs an `ack`, which stands for those before it since the last `id`.
    """

    message_id: str
    recipient: str
    was_stored: bool
    id: str | None = None


class DeliveryConfirms(FrameOperation, tag="delivery_confirms", kw_only=True):
    """Several `delivery_confirm` of one recipient: pairs of `message_id` and `was_stored`."""

    recipient: str
    confirmed: list[tuple[str, bool]]
    id: str | None = None


class RequestFailure(FrameOperation, tag="request_failed", kw_only=True):
    """All recipients of `message_id`, whose reply the agent waits for, have failed.

    `error` is the text that the last one gave; it may be empty.
    """

    message_id: str
    error: str = ""


class Error(FrameOperation, tag="error", kw_only=True):
    """The failure of the operation `ref`, or (`fatal`) of the connection.

    With `reason: moved`, another node of the relay serves this agent, at `url`; it is empty while
    none does.
    """

    error: str
    reason: str = ""
    ref: Ref | None = None
    retry_after_ms: int = 0
    fatal: bool = False
    url: str = ""


# From the agent


class Auth(AgentOperation, tag="auth", kw_only=True):
    """The proof of identity; `signature` is over `handshake.proof_text`.

    With `receive: pull` the relay delivers only on `fetch`. With `shared`, other connections of the
    subject share the mailbox, and messages are pushed while fewer than `prefetch` are unacked.
    With `batches`, which the challenge has to offer, the agent understands `sent_many` and
    `delivery_confirms`. `sealing_key` with `sealing_signature` (over `handshake.sealing_key_text`)
    lets other agents encrypt to this one. `card` is what the agent says about itself; without one,
    it is unchanged.
    """

    subject: str
    public_key: str
    signature: str
    receive: Literal["push", "pull"] = "push"
    shared: bool = False
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=number_max)] = 1
    batches: bool = False
    sealing_key: str | None = None
    sealing_signature: str | None = None
    card: AgentCard | None = None


class Parent(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The message that another follows from.

    The relay has its own record of it, and ignores the `budget` given here.
    """

    id: str
    budget: Budget | None = None


class Send(AgentOperation, tag="send", kw_only=True):
    """A message to publish. `budget` may only narrow what the relay and `parent` allow.

    `thread` names a conversation that begins here; a message with a parent has its parent's.
    `reply_within` is how many seconds the sender waits for a reply: if the recipients fail before,
    it gets a `request_failed`, and an error of theirs ends the delivery. With a `delay` in seconds,
    or at the instant `deliver_at`, it is delivered later.
    """

    ref: Ref
    subject: str
    payload: msgspec.Raw
    reply_to: str | None = None
    budget: dict[str, Any] | None = None
    parent: Parent | None = None
    message_id: str | None = None
    thread: str | None = None
    delay: Seconds | None = None
    deliver_at: Instant | None = None
    reply_within: Seconds = 0.0


class Ack(AgentOperation, tag="ack", kw_only=True):
    """Acknowledge messages: they leave the mailbox."""

    ids: Ids


class Nack(AgentOperation, tag="nack", kw_only=True):
    """Return messages to the mailbox, to be delivered again after `delay` seconds at the earliest.

    The delivery counts as failed, with `error`. With `release`, it does not: the messages were not
    processed.
    """

    ids: Ids
    delay: Seconds = 0.0
    error: str = ""
    release: bool = False


class Extend(AgentOperation, tag="extend", kw_only=True):
    """Keep messages for `seconds` more, at the earliest, without an ack: the agent works on them.

    It is a sign of life for all messages that the agent has not acknowledged.
    """

    ids: Ids
    seconds: Annotated[float, msgspec.Meta(ge=0, le=lease_extension_max_s)]


class Fetch(AgentOperation, tag="fetch", kw_only=True):
    """With `receive: pull`, request up to `limit` messages, none larger than `max_size_bytes`.

    The relay waits up to `wait` seconds for the first. With `tiers`, messages carry the tier of
    their sender. With `release`, those that are unacknowledged when the connection ends are
    released: for readers that show messages, and leave it to others to process them. With
    `answers`, only those to the messages that were sent on this connection, which is shared.
    """

    ref: Ref
    limit: Annotated[int, msgspec.Meta(ge=1, le=lease_max_messages)] = 50
    max_size_bytes: Annotated[int, msgspec.Meta(ge=0, le=number_max)] | None = None
    wait: Seconds = 0.0
    tiers: bool = False
    release: bool = False
    answers: bool = False


class ListScheduled(AgentOperation, tag="scheduled", kw_only=True):
    """Request the scheduled messages of this agent that are due first, up to `limit`."""

    ref: Ref
    limit: Annotated[int, msgspec.Meta(ge=1, le=scheduled_max_messages)] = scheduled_max_messages


class Cancel(AgentOperation, tag="cancel", kw_only=True):
    """Cancel scheduled messages of this agent that are not due yet."""

    ref: Ref
    ids: Ids


class SetCard(AgentOperation, tag="set_card", kw_only=True):
    """Replace what this agent says about itself; the empty card is none."""

    ref: Ref
    card: AgentCard


class SendSignal(AgentOperation, tag="signal", kw_only=True):
    """A signal to the agents connected now under a subject or pattern; never stored."""

    subject: str
    signal: Signal


class Signalled(FrameOperation, tag="signal", kw_only=True):
    """A signal for this agent; `sender` is empty if the relay sent it."""

    subject: str
    signal: Signal
    sender: str = ""


ControlOperation = (
    Challenge
    | Welcome
    | QueueStatus
    | Live
    | FetchedMessages
    | SendResult
    | SentMany
    | Answer
    | QueueFull
    | DeliveryConfirm
    | DeliveryConfirms
    | RequestFailure
    | Signalled
    | Error
)
FromRelay = Message | ControlOperation
FromAgent = (
    Auth | Send | Ack | Nack | Extend | Fetch | ListScheduled | Cancel | SetCard | SendSignal
)

CLOSE_NOT_AUTHENTICATED = 4401
CLOSE_FORBIDDEN = 4403
CLOSE_TOO_SLOW = 4408
CLOSE_STUCK = 4410
CLOSE_BY_OPERATOR = 4411
CLOSE_ALREADY_CONNECTED = 4409
CLOSE_TOO_LARGE = 4413
CLOSE_MOVED = 4421
MOVED = "moved"
"""The `reason` of an error that ends a connection because another node serves the agent."""
CLOSE_GOING_AWAY = 1001
