"""The operations of commands on a relay, wherever it is.

`local.LocalRelay` is a relay on this machine's disk, `remote.relay.RemoteRelay` one behind a URL.
Commands know neither. The types of the results are in `results`.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from waypost.cli.options import RelayChoice
from waypost.cli.results import (
    ConfigCheck,
    EndpointStatus,
    InboxContents,
    RedriveResult,
    SendReport,
    StatsResult,
)
from waypost.policy.access import AccessRule
from waypost.relay.errors import RelayError
from waypost.relay.inspection.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.inspection.history import MessageHistory
from waypost.wire.breaker_bodies import BreakerInfo, BreakerReset
from waypost.wire.cards import AgentInfo
from waypost.wire.history_bodies import Thread
from waypost.wire.http_bodies import CountResponse, RuleList
from waypost.wire.name_bodies import NameInfo
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.schedule_bodies import CancelResponse
from waypost.wire.scheduled import ScheduledMessage
from waypost.wire.stats_bodies import AgentConnection

if TYPE_CHECKING:
    from waypost.cli.local import LocalRelay
    from waypost.cli.remote.relay import RemoteRelay
    from waypost.client.webhooks import OwnWebhook


class MessageOperations(Protocol):
    """Send, read, consume and explain messages."""

    def send(
        self,
        message: OutgoingMessage,
        sender: str | None,
        *,
        register: bool,
        wait_s: float | None,
    ) -> SendReport:
        """Publish one message; with `register`, register its subject as an endpoint first.

        With `wait_s`, wait that many seconds for a recipient's confirmation.
        """

    def inbox(self, subject: str, limit: int, max_size_bytes: int | None) -> InboxContents:
        """Return the pending messages of a mailbox, oldest first, without removing them."""

    def consume(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        deliver: Callable[[InboxContents], None],
    ) -> None:
        """Pass messages to `deliver`, and acknowledge them once it has returned."""

    def explain(self, message_id: str) -> MessageHistory:
        """Return the history of a message; raise an error if there is none."""

    def thread(self, thread: str) -> Thread:
        """Return the messages of a conversation; raise an error if there are none."""


class DeadLetterOperations(Protocol):
    """List, group, redrive and purge dead letters; `subject` None means all endpoints."""

    def dead_letters(self, subject: str | None) -> tuple[list[DeadLetter], int]:
        """Return dead letters, the oldest failure first, and their total number."""

    def dead_letter_groups(self, subject: str | None) -> list[DeadLetterGroup]:
        """Return dead letters grouped by endpoint and reason, the largest group first."""

    def count_dead_letters(self, subject: str | None, older_than: timedelta | None) -> int:
        """Return how many dead letters a purge would delete."""

    def redrive(self, ids: Iterable[str] | None, subject: str | None) -> RedriveResult:
        """Move dead letters back into their mailboxes: those of `ids`, or all."""

    def purge(self, subject: str | None, older_than: timedelta | None) -> int:
        """Delete dead letters; return how many."""


class StatusOperations(Protocol):
    """Read endpoints, statistics and settings."""

    def endpoints(self) -> list[EndpointStatus]:
        """Return every registered endpoint, in order of registration."""

    def stats(self) -> StatsResult:
        """Return statistics and problems at one instant."""

    def check_config(self, file: Path | None) -> ConfigCheck:
        """Check whether the relay would accept `file`; without one, its own `config.json`."""

    def config(self) -> tuple[dict[str, Any], str]:
        """Return the settings as a `config.json`, and why the relay's own file is ignored."""


class ConfigOperations(Protocol):
    """Change rules and settings; changes are on disk when a call returns."""

    def rules(self) -> RuleList:
        """Return the access rules in the order in which they are applied."""

    def add_rule(self, rule: AccessRule) -> RuleList:
        """Add a rule, replacing one with the same patterns, key and priority; return all rules."""

    def remove_rule(
        self, from_: str, to: str, from_key: str | None, priority: int | None
    ) -> RuleList:
        """Remove the rule of a pair with this priority, or all rules of the pair.

        Return the remaining ones. Raise an error if there is no such rule.
        """

    def save_config(self, file: Path) -> ConfigCheck:
        """Make `file` the relay's `config.json`, if it is valid."""


class NameOperations(Protocol):
    """List names, bind them to keys, and free them."""

    def names(self) -> list[NameInfo]:
        """Return every name that belongs to a key, sorted."""

    def bind_name(self, subject: str, public_key: str, *, replace: bool) -> NameInfo:
        """Bind a name to a key; with `replace`, take it from another one."""

    def unbind_name(self, subject: str) -> NameInfo:
        """Free a name; return its last owner."""


class BreakerOperations(Protocol):
    """List circuit breakers, and reset one."""

    def breakers(self) -> dict[str, BreakerInfo]:
        """Return the breakers that are not at rest, by endpoint."""

    def reset_breaker(self, subject: str) -> BreakerReset:
        """Close the breaker of an endpoint; return its state before."""


class AgentOperations(Protocol):
    """List agents, show or disconnect one, and release its leases."""

    def agents(self) -> list[AgentConnection]:
        """Return the connected agents, in the order in which they connected."""

    def find_agents(self, skill: str | None, sender: str | None) -> list[AgentInfo]:
        """Return the agents that `sender`, or else the operator, sees in the directory."""

    def agent(self, subject: str, sender: str | None) -> AgentInfo:
        """Return one of them. Raise an error if there is no such agent."""

    def disconnect(self, subject: str) -> CountResponse:
        """End the connection of an agent. Raise an error if it is not connected."""

    def release_leases(self, subject: str) -> CountResponse:
        """Return the leased messages of an agent to its queue."""


class ScheduleOperations(Protocol):
    """List and cancel scheduled messages of `sender`, or of all senders."""

    def scheduled(self, sender: str | None) -> tuple[list[ScheduledMessage], bool]:
        """Return the messages that are not due yet, and whether there are more."""

    def cancel(self, ids: list[str], sender: str | None) -> CancelResponse:
        """Cancel messages that are not due yet."""


class Backend(
    MessageOperations, DeadLetterOperations, StatusOperations, ConfigOperations, Protocol
):
    """A relay."""


def open_backend(choice: RelayChoice) -> Backend:
    """Return the chosen relay: at its URL, or in its data directory."""
    return open_local(choice) if choice.url is None else open_remote(choice)


def open_names(choice: RelayChoice) -> NameOperations:
    """Return the names of the chosen relay."""
    if choice.url is None:
        from waypost.cli.local_names import LocalNames

        return LocalNames(choice.data_dir, open_local(choice).require)
    from waypost.cli.remote.operating import RemoteNames  # loads the HTTP client

    relay = RemoteNames(choice)
    choice.closing.callback(relay.close)
    return relay


def open_breakers(choice: RelayChoice) -> BreakerOperations:
    """Return the circuit breakers of the chosen relay."""
    if choice.url is None:
        from waypost.cli.local_operating import LocalBreakers

        return LocalBreakers(open_local(choice))
    from waypost.cli.remote.operating import RemoteBreakers  # loads the HTTP client

    relay = RemoteBreakers(choice)
    choice.closing.callback(relay.close)
    return relay


def open_agents(choice: RelayChoice) -> AgentOperations:
    """Return the connected agents of the chosen relay."""
    if choice.url is None:
        from waypost.cli.local_operating import LocalAgents

        return LocalAgents(choice.data_dir)
    from waypost.cli.remote.operating import RemoteAgents  # loads the HTTP client

    relay = RemoteAgents(choice)
    choice.closing.callback(relay.close)
    return relay


def open_webhook(choice: RelayChoice, subject: str) -> "OwnWebhook":
    """Return the webhook of an agent of the chosen relay. Raises `RelayError` without a URL."""
    if choice.url is None:
        raise RelayError(
            f"{choice.data_dir} is a data directory: webhooks are those of a served relay, so use"
            " its URL (--url)"
        )
    from waypost.cli.remote.operating import RemoteWebhooks  # loads the HTTP client

    relay = RemoteWebhooks(choice)
    choice.closing.callback(relay.close)
    return relay.webhook(subject)


def open_scheduled(choice: RelayChoice) -> ScheduleOperations:
    """Return the scheduled messages of the chosen relay."""
    if choice.url is None:
        from waypost.cli.local_operating import LocalScheduled

        return LocalScheduled(choice.data_dir)
    from waypost.cli.remote.operating import RemoteScheduled  # loads the HTTP client

    relay = RemoteScheduled(choice)
    choice.closing.callback(relay.close)
    return relay


def open_local(choice: RelayChoice) -> "LocalRelay":
    """Return the relay in the data directory."""
    from waypost.cli.local import LocalRelay  # loads the relay

    return LocalRelay(choice.data_dir)


def open_remote(choice: RelayChoice) -> "RemoteRelay":
    """Return the relay at the URL, by default `DEFAULT_URL`; it is closed with the choice."""
    from waypost.cli.remote.relay import RemoteRelay  # loads the HTTP client

    relay = RemoteRelay(choice)
    choice.closing.callback(relay.close)
    return relay
