"""Options of a client: timeouts, limits, encoding, TLS; each with its unit in its name."""

import ssl
from typing import Literal

import msgspec

from waypost.policy.errors import InvalidSettings
from waypost.policy.guard import MessagingGuardConfig
from waypost.wire.cards import AgentCard
from waypost.wire.frames import JSON_PROTOCOL, MSGPACK_PROTOCOL

WITHHELD_ACKS_MAX = 16

_PROTOCOLS = {"json": JSON_PROTOCOL, "msgpack": MSGPACK_PROTOCOL}


class ClientOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options with defaults that suit most agents. Raises `InvalidSettings` if out of range.

    `receive`: "push" delivers messages as they arrive; "pull" waits for `sync` and `fetch`.
    `release_unacked`: pulled messages that are unacked at the end of the connection are released,
    and do not count as failed deliveries: for readers that show messages.
    `shared`: other connections of the same identity may share its mailbox, as with
    `connect(…, shared=True)`.
    `prefetch_max`: with `shared`, pushed messages that may be unacked at this connection; with more
    than 1, some may wait for it while others are idle.
    `encoding`: "json" is faster, "msgpack" is smaller for numbers.
    `connect_timeout_s`: limit for the first connection, failed attempts included.
    `handshake_timeout_s`: limit for one attempt.
    `send_timeout_s`: limit for the answer to a send, reconnects included.
    `close_timeout_s`: limit for writing queued operations on close.
    `ping_interval_s`: a relay that is silent for twice this long counts as disconnected.
    `unanswered_max`: sends that may run ahead of their answers; the next one waits.
    `unread_max_messages`, `unread_max_bytes` of memory: past either, the client stops reading.
    `remembered_max_ids`: acknowledged message ids to remember, to recognize duplicate deliveries.
    `extend_max_s`: how long the lease of a message is extended while its block runs.
    `sealed_max_age_s`: sealed messages that are older do not open.
    `seal_memory`: where to remember the keys of other agents and opened seals, as the files
    PATH.known and PATH.opened; by default beside the key file.
    `card`: what the agent says about itself, for others to find it; None leaves it as it is.
    `tls`: TLS context for https and wss, in place of the default certificate checks.
    `guard`: limits of `request`.
    """

    receive: Literal["push", "pull"] = "push"
    release_unacked: bool = False
    shared: bool = False
    prefetch_max: int = 1
    encoding: Literal["json", "msgpack"] = "json"
    connect_timeout_s: float = 10.0
    handshake_timeout_s: float = 10.0
    send_timeout_s: float = 30.0
    close_timeout_s: float = 5.0
    ping_interval_s: float = 20.0
    unanswered_max: int = 1000
    unread_max_messages: int = 1000
    unread_max_bytes: int = 64 * 1024 * 1024
    remembered_max_ids: int = 10_000
    extend_max_s: float = 3600.0
    sealed_max_age_s: float = 7 * 24 * 3600.0
    seal_memory: str | None = None
    card: AgentCard | None = None
    tls: ssl.SSLContext | None = None
    guard: MessagingGuardConfig = MessagingGuardConfig()

    def __post_init__(self) -> None:
        if self.receive not in ("push", "pull"):
            raise InvalidSettings(f"receive must be 'push' or 'pull', not {self.receive!r:.40}")
        if self.encoding not in _PROTOCOLS:
            raise InvalidSettings(
                f"encoding must be 'json' or 'msgpack', not {self.encoding!r:.40}"
            )
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            if name.endswith("_s"):
                if not isinstance(value, int | float) or not 0 < value < float("inf"):
                    raise InvalidSettings(f"{name} must be more than 0 seconds, not {value!r:.40}")
            elif "_max" in name and (not isinstance(value, int) or value < 1):
                raise InvalidSettings(f"{name} must be 1 or more, not {value!r:.40}")

    @property
    def withheld_max_acks(self) -> int:
        """Return how many acks of dropped messages may wait without keeping others away."""
        return min(WITHHELD_ACKS_MAX, self.prefetch_max - 1) if self.shared else WITHHELD_ACKS_MAX

    @property
    def protocol(self) -> str:
        """Return the WebSocket subprotocol of `encoding`."""
        return _PROTOCOLS[self.encoding]


def chosen_options(options: ClientOptions | None, *, shared: bool) -> ClientOptions:
    """Return the options of a connection, `shared` if either says so."""
    chosen = options or ClientOptions()
    return msgspec.structs.replace(chosen, shared=True) if shared else chosen
