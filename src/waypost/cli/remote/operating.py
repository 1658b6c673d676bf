"""What an operator does at a served relay: dead letters, numbers, settings."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from waypost.cli.facts import ConfigCheck, EndpointFacts, Redriven, Stats
from waypost.cli.remote.answers import (
    DeadLetterAnswer,
    endpoints_of,
    stats_of,
)
from waypost.cli.remote.asking import Asking
from waypost.client.http import Role, Token
from waypost.policy.access import AccessRule
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import validate_subject
from waypost.relay.delivery.dead_letters import DeadLetter, DeadLetterGroup
from waypost.wire.http_bodies import (
    REDRIVE_MAX_IDS,
    ConfigState,
    CountResponse,
    EndpointInfo,
    EndpointList,
    InboxStats,
    PurgeRequest,
    RedriveRequest,
    RedriveResponse,
    RelayStats,
    RuleList,
)

_INBOXES_MAX = 10_000
_LISTED_MAX = 1000


class Operating(Asking):
    """The verbs that need the operator's token."""

    # Dead letters

    def dead_letters(self, subject: str | None) -> tuple[list[DeadLetter], int]:
        """The oldest dead letters, and how many there are in all."""
        found = self._dead(subject, group=False)
        return found.dead_letters, found.total

    def dead_letter_groups(self, subject: str | None) -> list[DeadLetterGroup]:
        """Dead letters by endpoint and reason, the largest group first."""
        return self._dead(subject, group=True).groups

    def count_dead_letters(self, subject: str | None, older_than: timedelta | None) -> int:
        """How many dead letters a purge would throw away, at most.

        With more than a relay lists one by one, a group of which some are older counts whole.
        """
        found = self._dead(subject, group=False)
        if older_than is None:
            return found.total
        before = datetime.now(UTC) - older_than
        if found.total <= len(found.dead_letters):
            return sum(one.failed_at < before for one in found.dead_letters)
        groups = self.dead_letter_groups(subject)
        return sum(one.count for one in groups if one.first_failed_at < before)

    def redrive(self, ids: Iterable[str] | None, subject: str | None) -> Redriven:
        """Put dead letters back into their mailboxes: those of `ids`, or all."""
        if subject is not None:
            validate_subject(subject)
        token = self.operator()
        if ids is None:
            groups = self.dead_letter_groups(subject)
            wanted = [one for group in groups for one in group.ids]
        else:
            wanted = list(ids)
        redriven, stayed = 0, []
        for start in range(0, len(wanted), REDRIVE_MAX_IDS):
            asked = RedriveRequest(ids=wanted[start : start + REDRIVE_MAX_IDS], subject=subject)
            done = self.api.post("/v1/dead-letters/redrive", asked, RedriveResponse, token=token)
            redriven += done.redriven
            stayed += done.not_redriven
        return Redriven(redriven, stayed)

    def purge(self, subject: str | None, older_than: timedelta | None) -> int:
        """Throw dead letters away; gives how many."""
        age_ms = None if older_than is None else older_than // timedelta(milliseconds=1)
        asked = PurgeRequest(subject=subject, older_than_ms=age_ms)
        return self.api.post(
            "/v1/dead-letters/purge", asked, CountResponse, token=self.operator()
        ).count

    # Overview

    def endpoints(self) -> list[EndpointFacts]:
        """Every registered endpoint, in order of registration."""
        token = self.operator()
        found: list[EndpointInfo] = []
        after: str | None = None
        while True:
            page = self.api.get(
                "/v1/endpoints", EndpointList, token=token, limit=10_000, after=after
            )
            found += page.endpoints
            after = page.next
            if after is None:
                return endpoints_of(found, self._stats(token).inboxes)

    def stats(self) -> Stats:
        """Numbers and problems at one instant."""
        return stats_of(self.url, self._stats(self.operator()))

    def rules(self) -> RuleList:
        """Access rules in the order in which they are tried."""
        return self.api.get("/v1/rules", RuleList, token=self.operator())

    def add_rule(self, rule: AccessRule) -> RuleList:
        """Add a rule, in place of one with the same patterns."""
        return self.api.post("/v1/rules", rule, RuleList, token=self.operator())

    def remove_rule(self, from_: str, to: str) -> RuleList:
        """Remove a rule."""
        named = {"from": from_, "to": to}
        return self.api.delete("/v1/rules", RuleList, token=self.operator(), **named)

    def check_config(self, file: Path | None) -> ConfigCheck:
        """Whether the relay would take `file`, or what it says about its own."""
        token = self.operator()
        if file is None:
            state = self.api.get("/v1/config", ConfigState, token=token)
            name = f"config.json of {self.url}"
            return ConfigCheck(
                name, bool(state.config), not state.problem, state.problem, state.notes
            )
        return self._put_config(file, token, dry_run=True)

    def save_config(self, file: Path) -> ConfigCheck:
        """Make `file` the relay's `config.json`, if it is valid."""
        return self._put_config(file, self.operator(), dry_run=False)

    def _put_config(self, file: Path, token: Token, *, dry_run: bool) -> ConfigCheck:
        try:
            content = file.read_bytes()
        except OSError as problem:
            return ConfigCheck(str(file), True, False, f"cannot be read: {problem.strerror}", [])
        try:
            state = self.api.put("/v1/config", content, ConfigState, token=token, dry_run=dry_run)
        except InvalidInput as problem:
            return ConfigCheck(str(file), True, False, str(problem), [])
        return ConfigCheck(str(file), True, True, "", state.notes)

    def config(self) -> tuple[dict[str, Any], str]:
        """The settings in force, and why the relay's own file is ignored, if it is."""
        state = self.api.get("/v1/config", ConfigState, token=self.operator())
        return state.settings, state.problem

    def usage_of(self, subject: str, token: Token) -> InboxStats | None:
        """The numbers of one mailbox, for those who may know them."""
        if token.role is not Role.OPERATOR:
            return None
        inboxes = self._stats(token).inboxes
        return next((one for one in inboxes if one.subject == subject), None)

    def _stats(self, token: Token) -> RelayStats:
        return self.api.get("/v1/stats", RelayStats, token=token, inboxes=_INBOXES_MAX)

    def _dead(self, subject: str | None, *, group: bool) -> DeadLetterAnswer:
        return self.api.get(
            "/v1/dead-letters",
            DeadLetterAnswer,
            token=self.operator(),
            subject=subject,
            group=group,
            limit=_LISTED_MAX,
        )
