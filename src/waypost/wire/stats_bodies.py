"""Statistics of a relay, its inboxes and its connections: response bodies, as JSON.

Responses may gain fields; readers ignore unknown ones.
"""

import msgspec

from waypost.policy.tiers import QosConfig, Tier
from waypost.wire.breaker_bodies import BreakerInfo
from waypost.wire.findings import OperatorFinding, SenderRejections


class SenderUsage(msgspec.Struct, kw_only=True):
    """Messages and bytes of one sender in one inbox, and the sender's tier there."""

    sender: str
    messages: int
    bytes: int
    tier: Tier


class InboxStats(msgspec.Struct, kw_only=True):
    """Counts of one inbox, and whether its agent is connected; `senders` have the most bytes.

    `oldest_us` is the arrival of the oldest unacknowledged message, None without one.
    """

    subject: str
    hash: str
    pending: int
    scheduled: int = 0
    leased: int
    dead: int
    bytes: int
    pressure: float
    oldest_us: int | None = None
    connected: bool
    senders: list[SenderUsage]


class AgentConnection(msgspec.Struct, kw_only=True):
    """A connection of an agent, its start (µs), and `push` or `pull` delivery.

    With `shared`, others may share the agent's mailbox. `unconfirmed` messages were sent and not
    acknowledged; `stuck_since_us` is 0 unless it shows no sign of life.
    """

    subject: str
    since_us: int
    receive: str
    shared: bool = False
    unconfirmed: int = 0
    stuck_since_us: int = 0


class NodeHealth(msgspec.Struct, kw_only=True):
    """The process of a relay and its machine; times are in µs.

    `synced_us` is the time of the last event that is on disk, 0 without one. `open_files` counts
    the files and connections that the process has open, of at most `open_files_max`.
    """

    version: str
    started_us: int
    synced_us: int
    disk_free_bytes: int
    disk_total_bytes: int
    open_files: int
    open_files_max: int


class RelayStats(msgspec.Struct, kw_only=True):
    """Statistics of a relay: `by_status` counts the messages now in its mailboxes.

    `events` and `rejected` count since the relay was started. `inboxes` lists the fullest, of
    `inboxes_total`. `breakers` are those not at rest, `qos` the quotas in force. `findings` are
    what to look at, the most urgent first; `rejections` the senders rejected in the last minutes,
    `node` the health of the process. With `public_key`, the relay signs its journal.
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
    breakers: dict[str, BreakerInfo]
    qos: QosConfig
    connected: list[AgentConnection]
    senders_tracked: int
    storage: str
    durability: str
    storage_full: bool
    problems: list[str]
    findings: list[OperatorFinding] = []
    rejections: list[SenderRejections] = []
    node: NodeHealth | None = None
    public_key: str = ""


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

    `messages_max` and `bytes_max` are None while there is no cap. `stuck`: a connection of its
    agent shows no sign of life.
    """

    at_us: int
    stuck: bool = False
    registered: bool
    messages_max: int | None
    bytes_max: int | None
    senders_total: int
    tiers: list[TierUsage]
