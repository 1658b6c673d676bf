"""What request handlers and connections share, and the options and settings of a server."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec

from waypost.policy.bounds import connections_max, payload_max_bytes
from waypost.policy.directory import DirectoryMode
from waypost.policy.settings import HousekeepingConfig, Settings
from waypost.policy.tiers import WEEK_MS, QosConfig, TierLimits
from waypost.relay.clock import Clock, system_clock
from waypost.relay.relay import Ownership, Partition, Relay
from waypost.server.directory import Directory
from waypost.server.identity.authenticator import Authenticator, Identities
from waypost.server.live.sampler import Sampler
from waypost.server.mailbox_factory import MailboxFactory
from waypost.server.metrics import HttpMetrics
from waypost.server.names import Names
from waypost.server.pipeline_jobs import PipelineJobs
from waypost.server.sessions.hub import Hub
from waypost.server.throttle import Throttle
from waypost.server.webhooks.webhooks import Webhooks

Positive = Annotated[int, msgspec.Meta(ge=1)]

SERVED_SETTINGS = Settings(
    default_ttl_ms=WEEK_MS,
    default_call_budget=40,
    pattern_senders="authenticated",
    max_fanout=100,
    relay_messages=TierLimits(1000, 4 * 1024 * 1024),
    qos=QosConfig(enabled=True, strangers=TierLimits(500, 32 * 1024 * 1024)),
    housekeeping=HousekeepingConfig(sweep_interval_ms=5 * 60_000),
)
"""The defaults of a served relay; `config.json` overrides them."""


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Options of serving a relay; its decisions about messages follow from `Settings`.

    `anonymous`: allow publishing without a token. `show_pressure`: show senders how full
    mailboxes are. `metrics`: who may read `/metrics`, anyone or only the operator. `batch`: the
    default number of messages in one response. `unconfirmed_max`: messages sent to a connected
    agent before it acknowledges any. `lake`: the directory of the pipeline's tables and report;
    None is `lake` in the data directory. `directory`: which agents an agent may list: all, those it
    exchanged messages with, or none; None is all if only this machine reaches the relay, else
    contacts.
    """

    anonymous: bool = True
    show_pressure: bool = False
    metrics: Literal["open", "operator"] = "open"
    directory: DirectoryMode | None = None
    mailboxes_made_max: Positive = 100_000
    batch: Positive = 50
    unconfirmed_max: Positive = 256
    body_max_bytes: Positive = payload_max_bytes + 64 * 1024
    """The limit of a request with messages: the largest payload fits, with its header."""
    answer_max_bytes: Positive = 16 * 1024 * 1024
    """The limit of messages in one response, unless it holds a single message."""
    connections_max: Positive = connections_max
    """TCP connections at once; fewer if the process may not open that many files."""
    lake: Path | None = None
    pipeline_command: Sequence[str] | None = None
    """Runs the command line, with which the operator starts pipeline jobs; None is no jobs."""


class Membership(NamedTuple):
    """What makes a served relay one partition of several.

    It owns its log, reaches the others through `partition`, and shares the keys of all agents with
    them.
    """

    ownership: Ownership
    partition: Partition
    identities: Identities


@dataclass
class ArrivingBodies:
    """The bytes of request bodies that are not complete yet."""

    held_bytes: int = 0


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """The parts of a served relay that handlers and connections use."""

    relay: Relay
    authenticator: Authenticator
    hub: Hub
    mailboxes: MailboxFactory
    names: Names
    webhooks: Webhooks
    directory: Directory
    options: ServeOptions
    public_key: str
    """The relay's own public key, with which it signs its journal."""
    http_metrics: HttpMetrics
    sampler: Sampler
    pipeline_jobs: PipelineJobs
    clock: Clock = system_clock
    arriving: ArrivingBodies = field(default_factory=ArrivingBodies)
    throttle: Throttle = field(default_factory=Throttle)
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    """Held while the journal is read for one caller, so that no caller occupies the disk alone."""

    @property
    def lake(self) -> Path:
        """The directory of the pipeline's tables and report."""
        return self.pipeline_jobs.lake
