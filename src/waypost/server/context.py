"""What the handlers of a served relay work with, and what its operator may choose about serving."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import msgspec

from waypost.policy.bounds import payload_max_bytes
from waypost.relay.clock import Clock, system_clock
from waypost.relay.relay import Relay
from waypost.server.identity.authenticator import Authenticator
from waypost.server.live.sampler import Feed
from waypost.server.mailbox_factory import Mailboxes
from waypost.server.metrics import Meters
from waypost.server.sessions.hub import Hub

Positive = Annotated[int, msgspec.Meta(ge=1)]


class ServeOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a relay is served. What it decides about messages is in `Settings`.

    `anonymous`: publishing without a token is allowed. `show_pressure`: senders may see how full
    mailboxes are. `batch`: messages handed out at once when nothing else is asked for.
    `unconfirmed_max`: messages ahead of a connected agent's confirmations. `lake`: where the
    pipeline keeps its tables and its report; None is `lake` in the data directory.
    """

    anonymous: bool = True
    show_pressure: bool = False
    mailboxes_made_max: Positive = 100_000
    batch: Positive = 50
    unconfirmed_max: Positive = 256
    body_max_bytes: Positive = payload_max_bytes + 64 * 1024
    """Of a request that carries messages; the largest payload fits, with its header."""
    answer_max_bytes: Positive = 16 * 1024 * 1024
    """Messages handed out with one answer, or else one message."""
    lake: Path | None = None


@dataclass(frozen=True, kw_only=True)
class ServerContext:
    """What handlers of requests and connections work with."""

    relay: Relay
    authenticator: Authenticator
    hub: Hub
    mailboxes: Mailboxes
    options: ServeOptions
    meters: Meters
    feed: Feed
    lake: Path
    clock: Clock = system_clock
    reading: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(2))
    """Held while the journal is read for one caller, so that nobody keeps the disk busy alone."""
