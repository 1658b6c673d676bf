"""Request and response bodies of the HTTP interface, as JSON.

Requests with unknown fields are rejected. Responses may gain fields; readers ignore unknown ones.
The format of subjects is stated here for the OpenAPI document and checked where they are used, with
better error texts.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from waypost.policy.access import AccessRule, Priority
from waypost.policy.bounds import (
    lease_extension_max_s,
    lease_max_messages,
    message_id_length_max_chars,
    number_max,
    publish_many_max_messages,
    subject_length_max_chars,
    subject_tokens_max,
)
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import Instant, Parent, Seconds
from waypost.wire.results import PublishResult

AUTO_MAILBOX_PREFIX = "agent."
"""A served relay creates the mailbox of a subject under this prefix on its first message."""

INBOX_WAIT_MAX_S = 60
INBOXES_MAX = 100
REDRIVE_MAX_IDS = 10_000

_TOKEN = "[A-Za-z0-9_-]+"
_MORE = f"{{0,{subject_tokens_max - 1}}}"
_WILD = rf"({_TOKEN}|\*)"

SubjectText = Annotated[
    str,
    msgspec.Meta(
        description="A dot-separated name.",
        min_length=1,
        max_length=subject_length_max_chars,
        examples=["agent.billing"],
        extra_json_schema={"pattern": rf"^{_TOKEN}(\.{_TOKEN}){_MORE}$"},
    ),
]
PatternText = Annotated[
    str,
    msgspec.Meta(
        description="A subject that may hold '*' (one token) and, last, '>' (one or more).",
        min_length=1,
        max_length=subject_length_max_chars,
        examples=["agent.*.refunds", "agent.>"],
        extra_json_schema={"pattern": rf"^({_WILD}\.){_MORE}({_WILD}|>)$"},
    ),
]
CursorText = Annotated[
    str, msgspec.Meta(description="`next` of the page before.", pattern=r"^\d{1,19}-\d{1,19}$")
]
IdText = Annotated[
    str,
    msgspec.Meta(
        description="A message id.",
        min_length=1,
        max_length=message_id_length_max_chars,
        examples=["01JCQ7Z0000000000000000000"],
        pattern="^[A-Za-z0-9_-]+$",
    ),
]
Number = Annotated[int, msgspec.Meta(ge=0, le=number_max)]
Limit = Annotated[int, msgspec.Meta(ge=1, le=lease_max_messages)]
Ids = Annotated[list[IdText], msgspec.Meta(min_length=1, max_length=lease_max_messages)]


class RequestBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Base of request bodies."""


# Authentication


class ChallengeResponse(msgspec.Struct, kw_only=True):
    """A nonce, to be signed within a minute as part of `handshake.proof_text`."""

    nonce: str


class TokenRequest(RequestBody, kw_only=True):
    """A signed challenge. Keys, nonce and signatures are unpadded base64url.

    `sealing_key` with `sealing_signature` lets other agents encrypt to this one.
    """

    subject: SubjectText
    public_key: str
    signature: str
    nonce: str
    sealing_key: str | None = None
    sealing_signature: str | None = None


class TokenResponse(msgspec.Struct, kw_only=True):
    """A token for `subject`: send `Authorization: Bearer <token>` until `expires_at` (ms)."""

    subject: str
    token: str
    expires_at: int


# Messages


class BudgetRequest(RequestBody, kw_only=True, omit_defaults=True):
    """A budget for a message; it can only narrow what the relay allows.

    `ttl` is the instant of expiry, in ms since the epoch. `ancestor_chain` is ignored.
    """

    hop_count: Number | msgspec.UnsetType = msgspec.UNSET
    max_hops: Annotated[int, msgspec.Meta(ge=1, le=number_max)] | msgspec.UnsetType = msgspec.UNSET
    ancestor_chain: list[str] | msgspec.UnsetType = msgspec.UNSET
    ttl: Number | msgspec.UnsetType = msgspec.UNSET
    call_budget_remaining: Number | msgspec.UnsetType = msgspec.UNSET


class NewMessage(RequestBody, kw_only=True):
    """A message to publish. Its payload is any JSON value, such as a `StandardPayload`.

    Its sender is the subject of the token, `parent` the message this one follows from, which was
    delivered to the sender. A repeated `message_id` returns the first result again. `thread` names
    a conversation that begins here; a message with a parent has its parent's. With a `delay` in
    seconds, or at the instant `deliver_at`, it is delivered later.
    """

    subject: PatternText
    payload: msgspec.Raw
    reply_to: SubjectText | None = None
    budget: BudgetRequest | None = None
    parent: Parent | None = None
    message_id: IdText | None = None
    thread: IdText | None = None
    delay: Seconds | None = None
    deliver_at: Instant | None = None


class NewMessages(RequestBody, kw_only=True):
    """Many messages with one commit. An invalid one fails them all."""

    messages: Annotated[
        list[NewMessage], msgspec.Meta(min_length=1, max_length=publish_many_max_messages)
    ]


class PublishResults(msgspec.Struct, kw_only=True):
    """The result of each message, in the order of the request."""

    results: list[PublishResult]


# Inboxes


class Delivered(Envelope, frozen=True, kw_only=True, omit_defaults=False):
    """A leased message. `parent` is the id of the message it follows from."""

    parent: str | None = None


class LeaseRequest(RequestBody, kw_only=True):
    """One of several inboxes to lease from."""

    subject: SubjectText
    limit: Limit = 50
    max_size_bytes: Number | None = None


class LeaseManyRequest(RequestBody, kw_only=True):
    """Several inboxes to lease from at once."""

    inboxes: Annotated[list[LeaseRequest], msgspec.Meta(min_length=1, max_length=INBOXES_MAX)]


class LeasedInbox(msgspec.Struct, kw_only=True):
    """Leased messages, the oldest first. Each returns to its mailbox unless acked in time."""

    subject: str
    messages: list[Delivered]


class LeasedInboxes(msgspec.Struct, kw_only=True):
    """Leased messages by inbox, in the order of the request."""

    inboxes: list[LeasedInbox]


class AckRequest(RequestBody, kw_only=True):
    """Messages to acknowledge."""

    ids: Ids


class NackRequest(RequestBody, kw_only=True):
    """Messages to return to their mailbox, pending again after `delay` seconds at the earliest.

    The delivery counts as failed, with `error`. With `release`, it does not: the messages were not
    processed.
    """

    ids: Ids
    delay: Seconds = 0.0
    error: str = ""
    release: bool = False


class ExtendRequest(RequestBody, kw_only=True):
    """Leased messages to keep for `seconds` from now on, at the earliest."""

    ids: Ids
    seconds: Annotated[float, msgspec.Meta(ge=0, le=lease_extension_max_s)]


class CountResponse(msgspec.Struct, kw_only=True):
    """The number of affected messages."""

    count: int


# Operating


class EndpointInfo(msgspec.Struct, kw_only=True):
    """A registered endpoint. `maildir_path` is None when mailboxes are not kept as files."""

    subject: str
    hash: str
    registered_at: datetime
    maildir_path: str | None = None


class EndpointList(msgspec.Struct, kw_only=True):
    """Endpoints by name. Pass `next` as `after` for the next page; None on the last page."""

    endpoints: list[EndpointInfo]
    next: str | None = None


class RedriveRequest(RequestBody, kw_only=True):
    """Dead letters to redrive; with `subject`, only those of that endpoint."""

    ids: Annotated[list[IdText], msgspec.Meta(min_length=1, max_length=REDRIVE_MAX_IDS)]
    subject: SubjectText | None = None


class RedriveResponse(msgspec.Struct, kw_only=True):
    """The number of redriven dead letters, and the requested ids that were not redriven."""

    redriven: int
    not_redriven: list[str]


class PurgeRequest(RequestBody, kw_only=True):
    """Dead letters to purge: of one endpoint, older than an age in ms, or all."""

    subject: SubjectText | None = None
    older_than_ms: Number | None = None


class RuleRequest(RequestBody, kw_only=True, rename={"from_": "from", "from_key": "fromKey"}):
    """An access rule. Rules are tried by descending priority; the first match decides."""

    from_: PatternText
    to: PatternText
    action: Literal["allow", "deny"]
    priority: Priority = 0
    from_key: str | msgspec.UnsetType = msgspec.UNSET


class RuleList(msgspec.Struct, kw_only=True):
    """The rules in evaluation order; `problem` is set if the rules file is unusable."""

    rules: list[AccessRule]
    problem: str = ""


class ConfigState(msgspec.Struct, kw_only=True):
    """The settings file as `config`, and the resulting `settings`.

    `notes` lists valid settings that cannot work as intended; `problem` is why the file is ignored.
    """

    config: dict[str, Any]
    settings: dict[str, Any]
    notes: list[str] = []
    problem: str = ""
    written: bool = False


class Health(msgspec.Struct, kw_only=True, omit_defaults=True):
    """The health of the relay, and its version if it is ready."""

    status: str
    version: str = ""
