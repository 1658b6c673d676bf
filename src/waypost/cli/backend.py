"""What a verb can ask of a relay, wherever it is.

`directory.Directory` is a relay on this machine's disk, `served.relay.Served` one behind a URL.
Verbs know neither. What each call gives is in `facts`.
"""

from collections.abc import Callable, Iterable
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol

from waypost.cli.facts import ConfigCheck, EndpointFacts, Inbox, Redriven, Sent, Stats
from waypost.policy.access import AccessRule
from waypost.relay.delivery.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.journal.history import MessageHistory
from waypost.wire.http_bodies import RuleList
from waypost.wire.outgoing import OutgoingMessage


class Messages(Protocol):
    """Messages in, messages out, and what became of one."""

    def send(
        self,
        message: OutgoingMessage,
        sender: str | None,
        *,
        register: bool,
        wait_s: float | None,
    ) -> Sent:
        """Publish one message, after giving its subject a mailbox if that is wanted.

        With `wait_s`, wait so many seconds for a recipient to confirm it.
        """

    def inbox(self, subject: str, limit: int, max_size_bytes: int | None) -> Inbox:
        """What waits in a mailbox, oldest first; it stays there."""

    def consume(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        deliver: Callable[[Inbox], None],
    ) -> None:
        """Hand messages to `deliver`, and acknowledge them once it has returned."""

    def explain(self, message_id: str) -> MessageHistory:
        """Everything that happened to a message; an error if that is nothing."""


class DeadLetters(Protocol):
    """Messages that could not be delivered; of one endpoint, or with `subject` None of all."""

    def dead_letters(self, subject: str | None) -> tuple[list[DeadLetter], int]:
        """Dead letters, the oldest failure first, and how many there are in all."""

    def dead_letter_groups(self, subject: str | None) -> list[DeadLetterGroup]:
        """The same by endpoint and reason, the largest group first."""

    def count_dead_letters(self, subject: str | None, older_than: timedelta | None) -> int:
        """How many dead letters a purge would throw away."""

    def redrive(self, ids: Iterable[str] | None, subject: str | None) -> Redriven:
        """Put dead letters back into their mailboxes: those of `ids`, or all."""

    def purge(self, subject: str | None, older_than: timedelta | None) -> int:
        """Throw dead letters away; gives how many."""


class Overview(Protocol):
    """Who is there, how it goes, and how it is set up."""

    def endpoints(self) -> list[EndpointFacts]:
        """Every registered endpoint, in order of registration."""

    def stats(self) -> Stats:
        """Numbers and problems at one instant."""

    def check_config(self, file: Path | None) -> ConfigCheck:
        """Whether the relay would take `file`; without one, its own."""

    def config(self) -> tuple[dict[str, Any], str]:
        """The settings as a `config.json`, and why the relay's own file is ignored, if it is."""


class Setup(Protocol):
    """Changing how it is set up; on disk when a call returns."""

    def rules(self) -> RuleList:
        """Access rules in the order in which they are tried."""

    def add_rule(self, rule: AccessRule) -> RuleList:
        """Add a rule, in place of one with the same patterns; gives all of them."""

    def remove_rule(self, from_: str, to: str) -> RuleList:
        """Remove a rule; gives those that are left. An error if there is no such rule."""

    def save_config(self, file: Path) -> ConfigCheck:
        """Make `file` the relay's `config.json`, if it is valid."""


class Target(Messages, DeadLetters, Overview, Setup, Protocol):
    """A relay."""
