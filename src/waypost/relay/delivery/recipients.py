"""The mailboxes that a subject or a pattern names, and which of them a sender may publish to."""

from collections.abc import Callable, Sequence

from waypost.policy.bounds import names_visited_per_endpoint_max
from waypost.policy.reserved_names import RELAY
from waypost.policy.subjects import is_literal
from waypost.relay.config.access_file import AccessFile
from waypost.relay.delivery.endpoints import REPLY_PREFIX
from waypost.relay.state.mailbox import Mailbox
from waypost.relay.state.relay_state import RelayState


class Recipients:
    """Finds the recipients of messages."""

    def __init__(
        self, state: RelayState, access: AccessFile, create_mailbox: Callable[[str], bool]
    ) -> None:
        """Take `create_mailbox(subject)`, which is called when a message that passed access rules
        and rate limit has no recipient, and returns whether it has one now. It may raise
        `MailboxUnavailable`."""
        self._state = state
        self._access = access
        self._create_mailbox = create_mailbox
        self.created = 0
        """Mailboxes created for messages."""

    def find(self, subject: str) -> Sequence[Mailbox] | None:
        """Return the mailbox of a registered endpoint, if there is one; None for a pattern."""
        mailbox = self._state.mailboxes.get(subject)
        if mailbox is not None:
            return (mailbox,) if mailbox.registered else ()
        return () if is_literal(subject) else None

    def match(self, pattern: str, limit: int) -> list[Mailbox] | None:
        """Return the endpoints that match a pattern; None if they are more than `limit`, or so
        many names have to be tried.

        Reply subjects match only a pattern with their prefix: a broadcast is not a reply.
        """

        def accept(mailbox: Mailbox) -> bool:
            return replies or not mailbox.subject.startswith(REPLY_PREFIX)

        endpoints, replies = self._state.endpoints, pattern.startswith(REPLY_PREFIX)
        if limit:
            visits_max = limit * names_visited_per_endpoint_max
            return endpoints.within_bounds(pattern, accept, limit, visits_max)
        return [mailbox for mailbox in endpoints.within(pattern) if accept(mailbox)]

    def allowed(self, sender: str, found: Sequence[Mailbox]) -> Sequence[Mailbox]:
        """Return those of `found` that access rules let `sender` publish to."""
        if not self._access.restricts or sender == RELAY:
            return found  # access rules do not apply to the relay itself
        return [to for to in found if self._access.check_access(sender, to.subject).allowed]

    def create(self, subject: str) -> Sequence[Mailbox]:
        """Create the mailbox of a message without a recipient, and return it; () if there is none.

        Raises `MailboxUnavailable`.
        """
        if not self._create_mailbox(subject):
            return ()
        self.created += 1
        return self.find(subject) or ()
