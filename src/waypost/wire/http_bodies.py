"""What requests to a served relay carry and what it answers, as JSON.

Requests are strict: a field nobody knows is a mistake, and said to be one. Answers may grow new
fields; readers ignore what they do not know. The format of subjects is stated here for readers
and checked where they are used, which can say better what is wrong.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

from waypost.policy.access import AccessRule
from waypost.policy.bounds import (
    lease_max_messages,
    message_id_length_max_chars,
    number_max,
    publish_many_max_messages,
    subject_length_max_chars,
    subject_tokens_max,
    wait_max_s,
)
from waypost.policy.breakers import CircuitBreakerState
from waypost.policy.tiers import Tier
from waypost.wire.envelopes import Envelope
from waypost.wire.frames import Parent
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
Seconds = Annotated[float, msgspec.Meta(ge=0, le=wait_max_s)]


class RequestBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Something a request carries."""


# Who you are


class ChallengeResponse(msgspec.Struct, kw_only=True):
    """Sign this, together with what `handshake.proof_text` says, within a minute."""

    nonce: str


class TokenRequest(RequestBody, kw_only=True):
    """A signed challenge. Keys, nonce and signatures are unpadded base64url.

    `sealing_key` with `sealing_signature` is for those who want to encrypt to you.
    """

    subject: SubjectText
    public_key: str
    signature: str
    nonce: str
    sealing_key: str | None = None
    sealing_signature: str | None = None


class TokenResponse(msgspec.Struct, kw_only=True):
    """You are `subject`; send `Authorization: Bearer <token>` until `expires_at` (ms)."""

    subject: str
    token: str
    expires_at: int


# Messages


class BudgetRequest(RequestBody, kw_only=True, omit_defaults=True):
    """What a message may do at most; it can only be less than the relay allows.

    `ttl` is the instant of expiry, in ms since the epoch.
    """

    hop_count: Number | msgspec.UnsetType = msgspec.UNSET
    max_hops: Annotated[int, msgspec.Meta(ge=1, le=number_max)] | msgspec.UnsetType = msgspec.UNSET
    ancestor_chain: list[SubjectText] | msgspec.UnsetType = msgspec.UNSET
    ttl: Number | msgspec.UnsetType = msgspec.UNSET
    call_budget_remaining: Number | msgspec.UnsetType = msgspec.UNSET


class NewMessage(RequestBody, kw_only=True):
    """A message to publish. Its sender is whoever the token belongs to.

    `parent` is the message this one follows from. The same `message_id` again gives the first
    result again.
    """

    subject: PatternText
    payload: msgspec.Raw
    reply_to: SubjectText | None = None
    budget: BudgetRequest | None = None
    parent: Parent | None = None
    message_id: IdText | None = None


class NewMessages(RequestBody, kw_only=True):
    """Many messages with one commit. One that is invalid fails them all."""

    messages: Annotated[
        list[NewMessage], msgspec.Meta(min_length=1, max_length=publish_many_max_messages)
    ]


class PublishResults(msgspec.Struct, kw_only=True):
    """What became of each message, in the order in which they were given."""

    results: list[PublishResult]


class HistoryItem(msgspec.Struct, kw_only=True, omit_defaults=True):
    """One thing that happened: when (µs), what, in which mailbox, and in words.

    `seq` is its number in the journal, for the operator only.
    """

    at_us: int
    kind: str
    endpoint: str = ""
    text: str = ""
    seq: int = 0


class MessageHistoryResponse(msgspec.Struct, kw_only=True):
    """Everything that happened to a message, as far as it is the reader's concern."""

    message_id: str
    steps: list[HistoryItem]


# Inboxes


class Delivered(Envelope, frozen=True, kw_only=True):
    """A message handed out. `parent` is the id of the message it follows from."""

    parent: str | None = None


class LeaseRequest(RequestBody, kw_only=True):
    """One of many inboxes to read."""

    subject: SubjectText
    limit: Limit = 50
    max_size_bytes: Number | None = None


class LeaseManyRequest(RequestBody, kw_only=True):
    """Several inboxes to read at once."""

    inboxes: Annotated[list[LeaseRequest], msgspec.Meta(min_length=1, max_length=INBOXES_MAX)]


class LeasedInbox(msgspec.Struct, kw_only=True):
    """Messages handed out, the oldest first. Each waits again if it is not acknowledged in time."""

    subject: str
    messages: list[Delivered]


class LeasedInboxes(msgspec.Struct, kw_only=True):
    """The inboxes in the order in which they were asked for."""

    inboxes: list[LeasedInbox]


class AckRequest(RequestBody, kw_only=True):
    """These are done."""

    ids: Ids


class NackRequest(RequestBody, kw_only=True):
    """These were not done: again, not before `delay` seconds have passed."""

    ids: Ids
    delay: Seconds = 0.0


class CountResponse(msgspec.Struct, kw_only=True):
    """How many it was."""

    count: int


# Operating


class EndpointInfo(msgspec.Struct, kw_only=True):
    """A registered endpoint. `maildir_path` is None when mailboxes are not kept as files."""

    subject: str
    hash: str
    registered_at: datetime
    maildir_path: str | None = None


class EndpointList(msgspec.Struct, kw_only=True):
    """Endpoints by name. `next` is what to give as `after` for more; None if this is the end."""

    endpoints: list[EndpointInfo]
    next: str | None = None


class RedriveRequest(RequestBody, kw_only=True):
    """Dead letters to put back; with `subject`, only those of that endpoint."""

    ids: Annotated[list[IdText], msgspec.Meta(min_length=1, max_length=REDRIVE_MAX_IDS)]
    subject: SubjectText | None = None


class RedriveResponse(msgspec.Struct, kw_only=True):
    """How many dead letters went back, and which ids were asked for and stayed."""

    redriven: int
    not_redriven: list[str]


class PurgeRequest(RequestBody, kw_only=True):
    """Dead letters to throw away: of one endpoint, or older than so many ms, or all."""

    subject: SubjectText | None = None
    older_than_ms: Number | None = None


class RuleRequest(RequestBody, kw_only=True, rename={"from_": "from"}):
    """An access rule. The highest priority is tried first; the first that matches decides."""

    from_: PatternText
    to: PatternText
    action: Literal["allow", "deny"]
    priority: Annotated[int, msgspec.Meta(ge=-number_max, le=number_max)] = 0


class RuleList(msgspec.Struct, kw_only=True):
    """The rules in the order in which they are tried; `problem` if their file cannot be used."""

    rules: list[AccessRule]
    problem: str = ""


class ConfigState(msgspec.Struct, kw_only=True):
    """`config` is the file as it is, `settings` what is in force (or would be).

    `notes` are valid settings that cannot work as meant; `problem` says why a file is ignored.
    """

    config: dict[str, Any]
    settings: dict[str, Any]
    notes: list[str] = []
    problem: str = ""
    written: bool = False


# Statistics


class SenderUsage(msgspec.Struct, kw_only=True):
    """Messages and bytes of one sender in one inbox, and the sender's tier there."""

    sender: str
    messages: int
    bytes: int
    tier: Tier


class InboxStats(msgspec.Struct, kw_only=True):
    """Counts of one inbox; `senders` lists those with the most bytes in it.

    `connected` is true while the agent of this inbox is connected.
    """

    subject: str
    hash: str
    pending: int
    leased: int
    dead: int
    bytes: int
    pressure: float
    connected: bool
    senders: list[SenderUsage]


class AgentConnection(msgspec.Struct, kw_only=True):
    """A connected agent, the start of its connection (µs), and `push` or `pull` delivery."""

    subject: str
    since_us: int
    receive: str


class RelayStats(msgspec.Struct, kw_only=True):
    """Statistics of a relay: `by_status` counts the messages now in its mailboxes.

    `events` and `rejected` count since the relay was started. `inboxes` lists the fullest, of
    `inboxes_total`.
    """

    at_us: int
    seq: int
    commits: int
    total_messages: int
    by_status: dict[str, int]
    events: dict[str, int]
    rejected: dict[str, int]
    inboxes: list[InboxStats]
    inboxes_total: int
    breakers: dict[str, CircuitBreakerState]
    connected: list[AgentConnection]
    senders_tracked: int
    storage: str
    durability: str
    storage_full: bool
    problems: list[str]


class TierUsage(msgspec.Struct, kw_only=True):
    """Messages and bytes of all senders of one tier, and the quota of each sender.

    The quotas are None while quotas are off.
    """

    tier: Tier
    senders: int
    messages: int
    bytes: int
    max_messages: int | None
    max_bytes: int | None


class InboxUsage(InboxStats, kw_only=True):
    """Counts, caps and senders of one inbox; `senders_total` counts the senders left out too.

    `oldest_us` is the arrival of the oldest pending message, None without one. `messages_max`
    and `bytes_max` are None while there is no cap.
    """

    at_us: int
    registered: bool
    messages_max: int | None
    bytes_max: int | None
    oldest_us: int | None
    senders_total: int
    tiers: list[TierUsage]


class Health(msgspec.Struct, kw_only=True):
    """Whether it can be relied on."""

    status: str
