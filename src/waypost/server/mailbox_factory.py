"""Creates a mailbox on the first message to a subject that has never connected.

Rule 1  A literal subject under `agent.` gets a mailbox once a message to it has passed access
        rules and rate limit, not before.
Rule 2  At the limit of endpoints, empty mailboxes created here are removed to make room, the
        oldest first.
Rule 3  An authenticated agent always gets its mailbox, and keeps it.
"""

import itertools
import logging
from collections.abc import Callable

from waypost.policy.subjects import is_subject
from waypost.relay.relay import Relay
from waypost.wire.http_bodies import AUTO_MAILBOX_PREFIX

log = logging.getLogger("waypost.server")

_CANDIDATES_MAX = 64
"""Mailboxes checked for removal at the limit: a flood must not cause a search of all."""


class MailboxFactory:
    """Creates mailboxes in `relay`, whose `create_mailbox` is `create`, up to `limit` endpoints.

    `is_known` returns whether an agent has ever authenticated as a subject.
    """

    def __init__(
        self, relay: Relay, limit: int, is_known: Callable[[str], bool] = lambda subject: True
    ) -> None:
        self._relay = relay
        self._limit = limit
        # Those of an earlier run: mailboxes of subjects that have never authenticated.
        self._created: dict[str, None] = {
            subject: None
            for subject in relay.inspect().subjects()
            if subject.startswith(AUTO_MAILBOX_PREFIX) and not is_known(subject)
        }
        self._rejected = 0

    def create(self, subject: str) -> bool:
        """Create the mailbox of `subject` if the rules allow it; return whether it has one."""
        if not subject.startswith(AUTO_MAILBOX_PREFIX) or not is_subject(subject):
            return False
        if self._relay.get_endpoint(subject) is not None:
            return True
        if not self._has_room():
            self._rejected += 1
            if self._rejected.bit_count() == 1:  # at 1, 2, 4, 8 …: does not fill the log
                log.warning(
                    "no mailbox for %s: limit of %d endpoints reached", subject, self._limit
                )
            return False
        self._relay.register_endpoint(subject)
        self._created[subject] = None
        return True

    def open_for(self, subject: str) -> None:
        """Create the mailbox of an authenticated agent if needed, and never remove it again."""
        self._created.pop(subject, None)
        if self._relay.get_endpoint(subject) is None:
            self._relay.register_endpoint(subject)

    def _has_room(self) -> bool:
        inspector = self._relay.inspect()
        if inspector.endpoint_count() < self._limit:
            return True
        for subject in list(itertools.islice(self._created, _CANDIDATES_MAX)):
            del self._created[subject]
            if self._relay.get_endpoint(subject) is None:
                continue
            if inspector.is_empty(subject):
                self._relay.unregister_endpoint(subject)
            else:
                self._created[subject] = None  # at the end: it is checked again later
        return inspector.endpoint_count() < self._limit
