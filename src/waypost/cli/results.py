"""Results of commands, before they are rendered. The JSON output has exactly these fields.

Publish results are translated for people here: endpoint names instead of hashes, with advice.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, assert_never

import msgspec

from waypost.policy.budgets import BudgetCut
from waypost.policy.reasons import Reason
from waypost.relay.data_dir import endpoint_hash, long_endpoint_hash
from waypost.relay.inspection.stats import MailboxStats
from waypost.wire.breaker_bodies import BreakerInfo
from waypost.wire.envelopes import Envelope
from waypost.wire.findings import OperatorFinding, SenderRejections
from waypost.wire.results import NeverConnected, PublishResult, Rejection


class RejectionAdvice(msgspec.Struct, frozen=True):
    """An endpoint that rejected a message, the reason, and what to do.

    `endpoint` is empty if the publish was rejected as a whole.
    """

    endpoint: str
    reason: Reason
    detail: str
    advice: str


class SendReport(msgspec.Struct, frozen=True):
    """The result of a send. `message_id` is empty if the publish was rejected as a whole.

    With `--wait`, `confirmed_by` is the recipient that confirmed the message in time, and
    `was_stored` whether the message was stored until then; None without a confirmation.
    `budget_cut` is what the relay granted instead of more; None if it granted everything.
    `never_connected` is set if the relay knows no agent of that name, and its directory is open.
    """

    subject: str
    message_id: str
    delivered_to: int
    rejected: list[RejectionAdvice]
    retry_after_ms: int
    confirmed_by: str = ""
    was_stored: bool | None = None
    budget_cut: BudgetCut | None = None
    never_connected: NeverConnected | None = None


class InboxContents(msgspec.Struct, frozen=True):
    """Messages of one mailbox, and its counts.

    `unreadable` describes messages that cannot be shown. Of an inbox that was consumed, a served
    relay reports counts to its operator only; to agents they are None.
    """

    subject: str
    messages: list[Envelope]
    pending: int | None
    leased: int | None
    unreadable: list[str] = []
    acknowledged: bool = False


class EndpointStatus(msgspec.Struct, frozen=True):
    """A registered endpoint. `maildir_path` is None when mailboxes are not kept as files.

    `oldest_us` is the arrival of its oldest unacknowledged message, None without one. Counts are
    None where a served relay has too many endpoints to report all of them.
    """

    subject: str
    hash: str
    maildir_path: str | None
    registered_at: datetime
    pending: int | None
    leased: int | None
    dead: int | None
    oldest_us: int | None


class RedriveResult(msgspec.Struct, frozen=True):
    """The number of dead letters that were redriven, and the ids that were not."""

    redriven: int
    not_redriven: list[str]


class StatsResult(msgspec.Struct, frozen=True):
    """Statistics and problems of a data directory, or of a served relay (then `url` is set).

    `events` and `rejected` are counted from `counted_since`; a served relay counts from its start.
    `in_use_by` is the pid of the relay running there, or empty. `connected` lists connected agents,
    `stuck` those of them that acknowledge nothing. `breakers` are those not at rest; of a data
    directory, those not closed. `findings` are what to look at, the most urgent first, `rejections`
    the senders that were rejected in the last minutes.
    """

    url: str
    data_dir: str
    in_use_by: str
    seq: int
    last_event_at: datetime | None
    storage: str
    durability: str
    total_messages: int
    by_status: dict[str, int]
    endpoints: list[MailboxStats]
    counted_since: datetime | None
    events: dict[str, int]
    rejected: dict[str, int]
    connected: list[str]
    stuck: list[str]
    breakers: dict[str, BreakerInfo]
    problems: list[str]
    findings: list[OperatorFinding]
    rejections: list[SenderRejections]


class PingResult(msgspec.Struct, frozen=True):
    """Round trips to a served relay, and its version; empty if the relay reports none."""

    url: str
    version: str
    count: int
    median_ms: float
    min_ms: float
    max_ms: float


class ConfigCheck(msgspec.Struct, frozen=True):
    """Whether a `config.json` is valid; `notes` are valid settings that cannot work as intended."""

    file: str
    exists: bool
    valid: bool
    problem: str
    notes: list[str]


class ReceivedMessage(msgspec.Struct, frozen=True):
    """A message received by `listen` or `request`. `was_stored`: it was stored for the listener.

    `attempt` is the number of this delivery. `problem` describes why a sealed payload could not be
    opened.
    """

    id: str
    subject: str
    sender: str
    reply_to: str | None
    created_at: datetime
    payload: object
    parent: str | None
    thread: str
    was_stored: bool
    attempt: int = 1
    problem: str | None = None


class CommandRun(msgspec.Struct, frozen=True):
    """A command that `listen --exec` ran for a message, and the outcome for the message.

    `exit_code` is None if the command did not end by itself, or did not start; a negative one is
    the signal that ended it. `answer` is the id of the answer, if one was sent. `error` is why the
    message was returned, or why no answer was sent.
    """

    id: str
    sender: str
    attempt: int
    exit_code: int | None
    duration_ms: int
    outcome: Literal["acknowledged", "returned", "released"]
    error: str = ""
    answer: str | None = None


class Confirmation(msgspec.Struct, frozen=True):
    """A delivery confirmation: `recipient` has acknowledged `message_id`."""

    message_id: str
    recipient: str
    was_stored: bool


def send_report(subject: str, result: PublishResult, names: Iterable[str]) -> SendReport:
    """Translate the result of a publish to `subject`; `names` are the possible endpoints."""
    by_hash = {hash_(name): name for name in names for hash_ in (endpoint_hash, long_endpoint_hash)}
    rejections = [
        RejectionAdvice(
            endpoint=by_hash.get(one.endpoint_hash, one.endpoint_hash),
            reason=one.reason,
            detail=one.detail,
            advice=advice(one.reason, result.retry_after_ms),
        )
        for one in result.rejected
    ]
    return SendReport(
        subject,
        result.message_id,
        result.delivered_to,
        rejections,
        result.retry_after_ms,
        budget_cut=result.budget_cut or None,
        never_connected=result.never_connected or None,
    )


def access_denied(problem: Exception) -> PublishResult:
    """Return the result of a publish that access rules rejected as a whole."""
    rejection = Rejection("", Reason.ACCESS_DENIED, str(problem))
    return PublishResult(message_id="", delivered_to=0, rejected=[rejection])


def advice(reason: Reason, retry_after_ms: int) -> str:
    """Return what a sender can do; `retry_after_ms` is 0 where waiting alone does not help."""
    match reason:
        case Reason.RATE_LIMITED:
            return f"this sender is over its rate limit: {_try_again(retry_after_ms)}"
        case Reason.FANOUT_EXCEEDED:
            return "the pattern matches too many endpoints: use a narrower one"
        case Reason.BACKPRESSURE:
            return "the mailbox is full: send again after its owner has acknowledged messages"
        case Reason.QUOTA_EXCEEDED:
            return "wait until the recipient has read earlier messages of this sender"
        case Reason.CIRCUIT_OPEN:
            return f"deliveries to this endpoint keep failing: {_try_again(retry_after_ms)}"
        case Reason.BUDGET_EXCEEDED:
            return "it is a dead letter now: see 'waypost dead-letters list' and 'redrive'"
        case Reason.STORAGE_FULL:
            return "free some space on the relay's disk, then send again"
        case Reason.ACCESS_DENIED:
            return "access rules forbid it: see 'waypost rules list' (access-rules.json)"
        case Reason.MAILBOX_UNAVAILABLE:
            return "check the relay's disk (inodes, space, permissions), then send again"
        case Reason.PARTITION_UNAVAILABLE:
            return "the recipient's relay is not available: it may arrive later; use the same id"
        case _:
            assert_never(reason)


def _try_again(retry_after_ms: int) -> str:
    if retry_after_ms <= 0:
        return "send again later"
    return f"send again in {max(1, round(retry_after_ms / 1000)):,} s"
