"""Mailboxes for those who are written to before they were ever here.

Rule 1  A literal subject under `agent.` gets a mailbox when a message for it has passed access
        rules and rate limit, and nothing before that.
Rule 2  There are at most `made_max` endpoints by this way. When there are, mailboxes made here
        that stand empty make room, the oldest first.
Rule 3  Whoever has proved to be `subject` gets its mailbox, made or not, and keeps it.
"""

import itertools
import logging
from collections.abc import Callable

from waypost.policy.subjects import is_subject
from waypost.relay.relay import Relay
from waypost.wire.http_bodies import AUTO_MAILBOX_PREFIX

log = logging.getLogger("waypost.server")

_LOOKED_AT_MAX = 64
"""When there is no room, so many are looked at: a flood must not pay for a search of all."""


class Mailboxes:
    """Creates mailboxes in `relay`, whose `create_mailbox` is `make_for`.

    `is_known` says whether anybody has ever proved to be a subject.
    """

    def __init__(
        self, relay: Relay, made_max: int, is_known: Callable[[str], bool] = lambda subject: True
    ) -> None:
        self._relay = relay
        self._made_max = made_max
        # Those of an earlier run: mailboxes of subjects that nobody has proved to be.
        self._made: dict[str, None] = {
            subject: None
            for subject in relay.inspect().subjects()
            if subject.startswith(AUTO_MAILBOX_PREFIX) and not is_known(subject)
        }
        self._rejected = 0

    def make_for(self, subject: str) -> bool:
        """Give `subject` a mailbox if it is one that gets it; whether it has one now."""
        if not subject.startswith(AUTO_MAILBOX_PREFIX) or not is_subject(subject):
            return False
        if self._relay.get_endpoint(subject) is not None:
            return True
        if not self._has_room():
            self._rejected += 1
            if self._rejected.bit_count() == 1:  # at 1, 2, 4, 8 …: seen, without filling the log
                log.warning(
                    "no mailbox for %s: there are %d already", subject, self._relay_endpoints()
                )
            return False
        self._relay.register_endpoint(subject)
        self._made[subject] = None
        return True

    def open_for(self, subject: str) -> None:
        """`subject` is here, in person: it has a mailbox from now on, and keeps it."""
        self._made.pop(subject, None)
        if self._relay.get_endpoint(subject) is None:
            self._relay.register_endpoint(subject)

    def _has_room(self) -> bool:
        if self._relay_endpoints() < self._made_max:
            return True
        for subject in list(itertools.islice(self._made, _LOOKED_AT_MAX)):
            del self._made[subject]
            if self._relay.get_endpoint(subject) is None:
                continue
            if self._relay.inspect().is_empty(subject):
                self._relay.unregister_endpoint(subject)
            else:
                self._made[subject] = None  # at the end: it has its turn again
        return self._relay_endpoints() < self._made_max

    def _relay_endpoints(self) -> int:
        return self._relay.inspect().endpoint_count()
