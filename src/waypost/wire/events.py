"""The journal's events: one JSON object per line, distinguished by `kind`.

Rule 1  Events are facts in the past tense; folding them in order gives the relay's state.
Rule 2  Header fields are flat and small. Payloads are inline or referenced by `body`, never both.
Rule 3  A field with its default value is omitted from the line.

A publish to several endpoints is several lines, `part` 0 to `parts - 1`, with one `id`. The
sender's rate window counts lines with `part` 0.

A line about messages that one consumer took or acknowledged together has their `ids`, and stands
for as many events: `seq` is the number of the last one. `split` returns them one by one.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, get_args

import msgspec

from waypost.policy.access import AccessRule
from waypost.policy.breakers import HANDLERS, CircuitState
from waypost.policy.budgets import Budget, BudgetCut
from waypost.policy.reasons import Reason
from waypost.wire.results import Rejection


class Event(msgspec.Struct, tag_field="kind", omit_defaults=True, kw_only=True, gc=False):
    """`seq` counts events from 1 without gaps; `at_us` is µs since the epoch, never decreasing."""

    seq: int = 0
    at_us: int


class BodyRef(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The location of a large payload in the body file beside the segment."""

    offset: int
    length: int
    crc: int


class _Arrived(Event, kw_only=True, gc=False):
    """An arrival: the message's header and the counts that each check used.

    `budget` is the budget on arrival, before the delivery was charged to it, and `budget_cut` what
    its sender got instead of more. `size` is the size of the stored envelope in bytes. `network` is
    a keyed hash of the network of a sender without a key. `chosen_id` is true if the sender chose
    the id. `thread` is the conversation's id; it is empty if that is the message's own id.
    `answer`: it answers its parent. `due_us` is when a scheduled message is to be delivered.
    `origin` is the partition that forwarded it, with the line `origin_seq` of its journal, which
    counts in the rate window in place of this one.
    """

    id: str
    thread: str = ""
    sender: str
    subject: str
    endpoint: str = ""
    part: int = 0
    parts: int = 1
    reply_to: str | None = None
    parent: str | None = None
    answer: bool = False
    due_us: int = 0
    chosen_id: bool = False
    network: str = ""
    size: int = 0
    budget: Budget
    budget_cut: BudgetCut | msgspec.UnsetType = msgspec.UNSET
    tier: int = 1
    rate_count: int = 0
    rate_limit: int = 0
    depth: int = 0
    depth_bytes: int = 0
    depth_max: int = 0
    quota_count: int = 0
    quota_bytes: int = 0
    breaker: CircuitState = CircuitState.CLOSED
    origin: int | None = None
    origin_seq: int = 0
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    body: BodyRef | None = None


class Accepted(_Arrived, tag="accepted", kw_only=True, gc=False):
    """Stored in the mailbox of `endpoint`; an empty endpoint means that none matched.

    `deferred`: a handler is subscribed or an agent is connected, so the breaker gets the outcome
    later. `probe`: this delivery tests a half-open breaker.
    """

    deferred: bool = False
    probe: bool = False


def _arrival_fields(arrival: Accepted) -> dict[str, Any]:
    """Return the fields of an arrival that do not depend on its acceptance."""
    fields = msgspec.structs.asdict(arrival)
    del fields["deferred"], fields["probe"]
    return fields


class Rejected(_Arrived, tag="rejected", kw_only=True, gc=False):
    """Rejected.

    `kept` is false if it would have become a dead letter, but its sender has too many. With
    `since_us`, the line stands for `count` equal rejections of a flood since then, and `at_us`
    is when the line was written.
    """

    reason: Reason
    detail: str = ""
    retry_after_ms: int = 0
    count: int = 1
    since_us: int = 0
    kept: bool = True

    @classmethod
    def of(
        cls, arrival: Accepted, reason: Reason, detail: str, retry_after_ms: int = 0
    ) -> "Rejected":
        """Return the rejection of an arrival."""
        fields = _arrival_fields(arrival)
        return cls(**fields, reason=reason, detail=detail, retry_after_ms=retry_after_ms)


class Forwarded(_Arrived, tag="forwarded", kw_only=True, gc=False):
    """Admitted as far as the partition of its sender decides; `partition` decides the rest.

    It waits in the outbox `endpoint`. A publish to several partitions is several lines.
    """

    partition: int

    @classmethod
    def of(cls, arrival: Accepted, partition: int) -> "Forwarded":
        """Return an arrival as one for another partition."""
        return cls(**_arrival_fields(arrival), partition=partition)


class _About(Event, kw_only=True, gc=False):
    """An event of one message in one mailbox."""

    id: str
    endpoint: str


class _AboutSome(Event, kw_only=True, gc=False):
    """Events of one mailbox: of the message `id`, or of all `ids`."""

    id: str = ""
    ids: tuple[str, ...] = ()
    endpoint: str


class Leased(_AboutSome, tag="leased", kw_only=True, gc=False):
    """Leased until `until_us` (0: as long as its handler runs, or its agent shows life).

    `attempt` counts its deliveries. `extended`: no new delivery, only a later end of this one.
    """

    until_us: int = 0
    via: str = "lease"
    attempt: int = 1
    extended: bool = False


class Acked(_AboutSome, tag="acked", kw_only=True, gc=False):
    """Acknowledged; the message has left the mailbox."""

    via: str = "lease"


class Returned(_About, tag="returned", kw_only=True, gc=False):
    """Returned to the mailbox; pending from `not_before_us` on.

    `uncounted`: without a verdict, so that the delivery counts neither as an attempt nor as a
    failure for the breaker.
    """

    reason: str
    not_before_us: int = 0
    uncounted: bool = False


class Failed(_About, tag="failed", kw_only=True, gc=False):
    """Delivery failed; now a dead letter. `uncounted`: it is not a failure for the breaker."""

    reason: str
    via: str = "handler"
    uncounted: bool = False


class Expired(_About, tag="expired", kw_only=True, gc=False):
    """Expired. `was` is "pending", or "dead" for a purged dead letter."""

    was: str = "pending"
    reason: str = "time to live is over"


class Evicted(_About, tag="evicted", kw_only=True, gc=False):
    """Evicted to make room in a full mailbox; now a dead letter."""

    sender: str
    reason: str


class Decided(_About, tag="decided", kw_only=True, gc=False):
    """The decision of another partition about a forwarded message, which left the outbox
    `endpoint`. With an `error`, it was not a valid message there."""

    sender: str
    delivered_to: int = 0
    rejected: tuple[Rejection, ...] = ()
    retry_after_ms: int = 0
    error: str = ""


class Redriven(_About, tag="redriven", kw_only=True, gc=False):
    """A dead letter, put back at the end of its mailbox."""


class Queued(_About, tag="queued", kw_only=True, gc=False):
    """A scheduled message that is due, put at the end of its mailbox's queue."""


class Cancelled(_About, tag="cancelled", kw_only=True, gc=False):
    """A scheduled message, cancelled before it was due by its "sender" or the "operator"."""

    via: str = "sender"


class BreakerMoved(Event, tag="breaker", kw_only=True, gc=False):
    """A circuit breaker changed state, or was reset: then `before` may be equal to `after`."""

    endpoint: str
    before: CircuitState
    after: CircuitState
    occasion: str


class EndpointChanged(Event, tag="endpoint", kw_only=True, gc=False):
    """`action` is "registered" or "unregistered"; `since_us` is the first registration.

    `directory` is the name of the mailbox's directory, if another subject has the usual one.
    """

    endpoint: str
    action: str
    since_us: int = 0
    directory: str = ""


class SessionChanged(Event, tag="session", kw_only=True, gc=False):
    """An agent connected or disconnected; with a `reason` if the relay ended the connection."""

    subject: str
    action: str
    reason: str = ""


class PairSeen(Event, tag="seen", kw_only=True, gc=False):
    """A last-seen pair restored from the lake: `sender` sent to `endpoint` at `seen_ms`."""

    sender: str
    endpoint: str
    seen_ms: int


class RulesChanged(Event, tag="rules", kw_only=True, gc=False):
    """The access rules from here on."""

    rules: list[AccessRule]
    problem: str = ""


class SettingsChanged(Event, tag="settings", kw_only=True, gc=False):
    """The settings from here on, as in `config.json`; `cause` is "start" or "reload".

    `breakers_count` is what circuit breakers count from here on: "handlers", as relays did before
    they journaled this, or "deliveries".
    """

    cause: str
    settings: dict[str, Any]
    problem: str = ""
    breakers_count: str = HANDLERS


class OwnerChanged(Event, tag="owner", kw_only=True, gc=False):
    """From here on, `node` at `address` writes this journal, until an owner of a higher `epoch`."""

    epoch: int
    node: str
    address: str = ""


class SignedCheckpoint(Event, tag="checkpoint", kw_only=True, gc=False):
    """The relay signed its journal up to here: all batches before the one with this event.

    `head` is the hash of the last of them, `signature` that of the relay's key `key` over
    `handshake.checkpoint_text`; both are base64url.
    """

    head: str
    key: str
    signature: str


class BodiesHash(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The part of the body file that a batch wrote, with its SHA-256 in hexadecimal."""

    offset: int
    length: int
    sha256: str


class Commit(
    msgspec.Struct, tag_field="kind", tag="commit", omit_defaults=True, kw_only=True, gc=False
):
    """The end of a batch: `count` events in the `bytes` before this line, with their CRC-32.

    `prev` is the hash of the batch before it; journals of older versions have none. `bodies` are
    the large payloads that were written with the batch.
    """

    seq: int
    at_us: int
    count: int
    bytes: int
    crc: int
    prev: str = ""
    bodies: BodiesHash | None = None


MailboxEvent = (
    Leased | Acked | Returned | Failed | Expired | Evicted | Redriven | Queued | Cancelled
)
AnyEvent = (
    Accepted
    | Rejected
    | Forwarded
    | Decided
    | MailboxEvent
    | BreakerMoved
    | EndpointChanged
    | SessionChanged
    | PairSeen
    | RulesChanged
    | SettingsChanged
    | OwnerChanged
    | SignedCheckpoint
)


SomeEvent = TypeVar("SomeEvent", bound=Event)


def event_count(event: Event) -> int:
    """Return how many events a line stands for."""
    return len(event.ids) or 1 if isinstance(event, Leased | Acked) else 1


def split(event: SomeEvent) -> Iterator[SomeEvent]:
    """Yield the events that a line stands for: each of one message, with its own number."""
    if isinstance(event, Leased | Acked) and event.ids:
        first_seq = event.seq - len(event.ids) + 1
        for seq, one in enumerate(event.ids, first_seq):
            yield msgspec.structs.replace(event, seq=seq, id=one, ids=())
    else:
        yield event


def omitted_defaults() -> list[tuple[str, tuple[str, ...], str | int]]:
    """Return the values that lines omit: field, the kinds of events that have it, its default."""
    by_value: dict[tuple[str, type, str | int], list[str]] = {}
    for kind in get_args(AnyEvent):
        tag = str(kind.__struct_config__.tag)
        for field in msgspec.structs.fields(kind):
            if isinstance(field.default, str | int):
                value = str(field.default) if isinstance(field.default, str) else field.default
                by_value.setdefault((field.name, type(value), value), []).append(tag)
    return [(name, tuple(tags), value) for (name, _, value), tags in by_value.items()]


encode_event = msgspec.json.Encoder().encode
encode_event_into = msgspec.json.Encoder().encode_into
decode_event: Callable[[bytes], AnyEvent] = msgspec.json.Decoder(AnyEvent).decode
_decode_commit = msgspec.json.Decoder(Commit).decode
COMMIT_PREFIX = b'{"kind":"commit"'


def decode_commit(line: bytes) -> Commit:
    """Decode a commit line. Raises `msgspec.MsgspecError` if it is not one."""
    try:
        return _decode_commit(line)
    except UnicodeDecodeError as problem:
        raise msgspec.DecodeError(str(problem)) from None
