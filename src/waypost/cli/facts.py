"""What verbs find out, before it is shown. The JSON that verbs print has these fields."""

from datetime import datetime

import msgspec

from waypost.policy.reasons import Reason
from waypost.relay.inspection.stats import MailboxStats
from waypost.wire.envelopes import Envelope


class RejectionAdvice(msgspec.Struct, frozen=True):
    """One endpoint that did not get a message (empty: nobody did), why, and what to do."""

    endpoint: str
    reason: Reason
    detail: str
    advice: str


class Sent(msgspec.Struct, frozen=True):
    """What became of a message. `message_id` is empty when none came to be.

    `confirmed_by` is who has confirmed it, if that was waited for and came in time, and
    `was_stored` whether it had to wait there; None if nobody knows yet.
    """

    subject: str
    message_id: str
    delivered_to: int
    rejected: list[RejectionAdvice]
    retry_after_ms: int
    confirmed_by: str = ""
    was_stored: bool | None = None


class Inbox(msgspec.Struct, frozen=True):
    """Messages of one mailbox, and how many more there are.

    `unreadable` says what is wrong with messages that cannot be shown. A served relay tells the
    numbers to its operator only; to others they are None.
    """

    subject: str
    messages: list[Envelope]
    pending: int | None
    leased: int | None
    unreadable: list[str] = []
    acknowledged: bool = False


class EndpointFacts(msgspec.Struct, frozen=True):
    """A registered endpoint. `maildir_path` is None when mailboxes are not kept as files.

    Numbers are None where a served relay has too many endpoints to tell of all.
    """

    subject: str
    hash: str
    maildir_path: str | None
    registered_at: datetime
    pending: int | None
    leased: int | None
    dead: int | None


class Redriven(msgspec.Struct, frozen=True):
    """How many dead letters went back, and which were asked for and stayed."""

    redriven: int
    not_redriven: list[str]


class Stats(msgspec.Struct, frozen=True):
    """Numbers and problems of one directory, or of one served relay (then `url` is not empty).

    `events` and `rejected` count what happened since `counted_since`; a served relay counts since
    it was started. `in_use_by` is the pid of the relay that runs there, empty if none does.
    `connected` are the agents that are connected.
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
    problems: list[str]


class ConfigCheck(msgspec.Struct, frozen=True):
    """Whether a `config.json` can be used; `notes` are valid settings that cannot work as meant."""

    file: str
    exists: bool
    valid: bool
    problem: str
    notes: list[str]


class Heard(msgspec.Struct, frozen=True):
    """A message as it came to whoever listens. `was_stored`: it waited for the listener.

    `problem` says what is wrong with a payload that was sealed and could not be opened.
    """

    id: str
    subject: str
    sender: str
    reply_to: str | None
    created_at: datetime
    payload: object
    parent: str | None
    was_stored: bool
    problem: str | None = None


class Confirmation(msgspec.Struct, frozen=True):
    """What was sent before has arrived: `recipient` has confirmed `message_id`."""

    message_id: str
    recipient: str
    was_stored: bool
