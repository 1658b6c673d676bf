"""What verbs find out, before it is shown. The JSON that verbs print has these fields."""

from datetime import datetime

import msgspec

from waypost.policy.verdicts import Reason
from waypost.relay.upkeep.metrics import EndpointMetrics
from waypost.wire.envelopes import Envelope


class Refusal(msgspec.Struct, frozen=True):
    """One endpoint that did not get a message (empty: nobody did), why, and what to do."""

    endpoint: str
    reason: Reason
    detail: str
    advice: str


class Sent(msgspec.Struct, frozen=True):
    """What became of a message. `message_id` is empty when none came to be."""

    subject: str
    message_id: str
    delivered_to: int
    rejected: list[Refusal]
    retry_after_ms: int


class Inbox(msgspec.Struct, frozen=True):
    """Messages of one mailbox, and how many more there are.

    `unreadable` says what is wrong with messages that cannot be shown.
    """

    subject: str
    messages: list[Envelope]
    pending: int
    leased: int
    unreadable: list[str] = []
    acknowledged: bool = False


class EndpointFacts(msgspec.Struct, frozen=True):
    """A registered endpoint. `maildir_path` is None when mailboxes are not kept as files."""

    subject: str
    hash: str
    maildir_path: str | None
    registered_at: datetime
    pending: int
    leased: int
    dead: int


class Redriven(msgspec.Struct, frozen=True):
    """How many dead letters went back, and which were asked for and stayed."""

    redriven: int
    not_redriven: list[str]


class Stats(msgspec.Struct, frozen=True):
    """Numbers and problems of one directory.

    `events` and `rejected` count what happened since `counted_since`. `in_use_by` is the pid of
    the relay that runs there, empty if none does.
    """

    data_dir: str
    in_use_by: str
    seq: int
    last_event_at: datetime | None
    storage: str
    durability: str
    total_messages: int
    by_status: dict[str, int]
    endpoints: list[EndpointMetrics]
    counted_since: datetime | None
    events: dict[str, int]
    rejected: dict[str, int]
    problems: list[str]


class ConfigCheck(msgspec.Struct, frozen=True):
    """Whether a `config.json` can be used; `notes` are valid settings that cannot work as meant."""

    file: str
    exists: bool
    valid: bool
    problem: str
    notes: list[str]
