"""The operations of commands on a served relay: the counterpart of `local.LocalRelay`.

Rule 1  With keys, a request is made as that agent. Only commands that need the operator's token
        send it.
Rule 2  Values that a served relay does not report are None, never invented.
"""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from waypost.cli.options import DEFAULT_URL, RelayChoice
from waypost.cli.remote.credentials import Credentials, keys_missing
from waypost.cli.remote.histories import remote_history, remote_thread
from waypost.cli.remote.operator_token import CredentialMissing, OperatorToken
from waypost.cli.remote.responses import (
    DeadLetterResponse,
    InboxResponse,
    PeekResponse,
    endpoint_statuses,
    new_message,
    stats_result,
)
from waypost.cli.results import (
    ConfigCheck,
    EndpointStatus,
    InboxContents,
    RedriveResult,
    SendReport,
    StatsResult,
    send_report,
)
from waypost.client.http import (
    NO_TOKEN,
    OPERATOR_TOKEN_NEEDED,
    HttpClient,
    RemoteError,
    Role,
    Token,
    path_segment,
)
from waypost.files import read_file
from waypost.policy.access import AccessRule
from waypost.policy.bounds import config_file_max_bytes
from waypost.policy.errors import InvalidInput
from waypost.policy.reserved_names import OPERATOR
from waypost.policy.subjects import is_literal, validate_subject
from waypost.relay.inspection.dead_letters import DeadLetter, DeadLetterGroup
from waypost.relay.inspection.history import MessageHistory
from waypost.wire.history_bodies import Thread
from waypost.wire.http_bodies import (
    AUTO_MAILBOX_PREFIX,
    REDRIVE_MAX_IDS,
    AckRequest,
    ConfigState,
    CountResponse,
    EndpointInfo,
    EndpointList,
    NackRequest,
    NewMessages,
    PublishResults,
    PurgeRequest,
    RedriveRequest,
    RedriveResponse,
    RuleList,
)
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.stats_bodies import InboxStats, RelayStats

_ENDPOINTS_PER_PAGE = 10_000
_INBOXES_MAX = 10_000
_DEAD_LETTERS_MAX = 1000


class RemoteRelay:
    """A relay behind a URL."""

    def __init__(self, choice: RelayChoice) -> None:
        self.credentials = Credentials(choice)
        self.api = HttpClient(choice.url or DEFAULT_URL, self._on_accepted)
        self.url = self.api.url
        self._operator_token = OperatorToken(choice, self.url)

    def close(self) -> None:
        """Close the connection."""
        self.api.close()

    # Messages

    def send(
        self,
        message: OutgoingMessage,
        sender: str | None,
        *,
        register: bool,
        wait_s: float | None = None,
    ) -> SendReport:
        """Publish one message; with `wait_s`, as a connected agent that waits for confirmation."""
        message.check()
        if register:
            self._register(message.subject)
        identity = None if sender == OPERATOR else self.credentials.identity(sender)
        if identity is None and (sender not in (None, OPERATOR) or wait_s is not None):
            raise keys_missing(sender)
        if identity is not None and wait_s is not None:
            from waypost.cli.remote.agent import send_and_wait

            return send_and_wait(self.url, identity, message, wait_s)
        if sender == OPERATOR:
            token = self._operator()
        else:
            token = NO_TOKEN if identity is None else self.api.log_in(identity)
        try:
            # As a batch of one, so that a rejection is a result with all its details.
            batch = NewMessages(messages=[new_message(message)])
            response = self.api.post("/v1/messages", batch, PublishResults, token=token)
        except RemoteError as problem:
            if problem.status == 401 and token is NO_TOKEN:
                raise CredentialMissing(
                    f"the relay at {self.url} accepts no anonymous messages: {keys_missing(None)};"
                    " --sender _operator sends as its operator"
                ) from None
            raise
        names = [message.subject] if is_literal(message.subject) else []
        return send_report(message.subject, response.results[0], names)

    def inbox(self, subject: str, limit: int, max_size_bytes: int | None) -> InboxContents:
        """Return the pending messages of a mailbox, oldest first, without leasing them."""
        token = self._reader(subject)
        seen = self.api.get(
            f"/v1/inbox/{path_segment(subject)}/peek",
            PeekResponse,
            token=token,
            limit=limit,
            max_size_bytes=max_size_bytes,
        )
        return InboxContents(subject, seen.messages, seen.pending, seen.leased, seen.unreadable)

    def consume(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        deliver: Callable[[InboxContents], None],
    ) -> None:
        """Lease messages, pass them to `deliver`, and acknowledge them once it has returned.

        If it raises they are released; if this process dies meanwhile, when their lease expires.
        """
        token = self._reader(subject)
        leased = self._lease(subject, limit, max_size_bytes, token)
        counts = self._inbox_stats(subject, token)
        leased_by_others = counts.leased - len(leased.messages) if counts else None
        pending = counts.pending if counts else None
        try:
            deliver(
                InboxContents(
                    subject, leased.messages, pending, leased_by_others, acknowledged=True
                )
            )
        except BaseException:
            self._release(subject, leased, token)
            raise
        if leased.messages:
            acked = AckRequest(ids=[one.id for one in leased.messages])
            self.api.post(
                f"/v1/inbox/{path_segment(subject)}/ack", acked, CountResponse, token=token
            )

    def explain(self, message_id: str) -> MessageHistory:
        """Return the history of a message, as far as the caller may see it."""
        return remote_history(self.api, self._history_reader(), message_id)

    def thread(self, thread: str) -> Thread:
        """Return the messages of a conversation, as far as the caller may see them."""
        return remote_thread(self.api, self._history_reader(), thread)

    def _history_reader(self) -> Token:
        """Return the operator's token if it is given, else that of the agent with these keys."""
        token = self._operator_if_given()
        if token is not NO_TOKEN:
            return token
        identity = self.credentials.identity(None)
        if identity is None:
            raise CredentialMissing(
                f"{OPERATOR_TOKEN_NEEDED}; or the keys of its sender with --key"
            )
        return self.api.log_in(identity)

    # Dead letters

    def dead_letters(self, subject: str | None) -> tuple[list[DeadLetter], int]:
        """Return the oldest dead letters, and their total number."""
        found = self._dead_letters(subject, group=False)
        return found.dead_letters, found.total

    def dead_letter_groups(self, subject: str | None) -> list[DeadLetterGroup]:
        """Return dead letters grouped by endpoint and reason, the largest group first."""
        return self._dead_letters(subject, group=True).groups

    def count_dead_letters(self, subject: str | None, older_than: timedelta | None) -> int:
        """Return an upper bound of the dead letters that a purge would delete.

        It is exact unless the relay has more than it lists: then a group with some older dead
        letters counts as a whole.
        """
        found = self._dead_letters(subject, group=False)
        if older_than is None:
            return found.total
        before = datetime.now(UTC) - older_than
        if found.total <= len(found.dead_letters):
            return sum(one.failed_at < before for one in found.dead_letters)
        groups = self.dead_letter_groups(subject)
        return sum(one.count for one in groups if one.first_failed_at < before)

    def redrive(self, ids: Iterable[str] | None, subject: str | None) -> RedriveResult:
        """Move dead letters back into their mailboxes: those of `ids`, or all."""
        if subject is not None:
            validate_subject(subject)
        token = self._operator()
        if ids is None:
            groups = self.dead_letter_groups(subject)
            wanted = [one for group in groups for one in group.ids]
        else:
            wanted = list(ids)
        redriven, not_redriven = 0, []
        for start in range(0, len(wanted), REDRIVE_MAX_IDS):
            batch = RedriveRequest(ids=wanted[start : start + REDRIVE_MAX_IDS], subject=subject)
            done = self.api.post("/v1/dead-letters/redrive", batch, RedriveResponse, token=token)
            redriven += done.redriven
            not_redriven += done.not_redriven
        return RedriveResult(redriven, not_redriven)

    def purge(self, subject: str | None, older_than: timedelta | None) -> int:
        """Delete dead letters; return how many."""
        age_ms = None if older_than is None else older_than // timedelta(milliseconds=1)
        body = PurgeRequest(subject=subject, older_than_ms=age_ms)
        return self.api.post(
            "/v1/dead-letters/purge", body, CountResponse, token=self._operator()
        ).count

    # Endpoints, statistics, rules and settings

    def endpoints(self) -> list[EndpointStatus]:
        """Return every registered endpoint, in order of registration."""
        token = self._operator()
        found: list[EndpointInfo] = []
        after: str | None = None
        while True:
            page = self.api.get(
                "/v1/endpoints", EndpointList, token=token, limit=_ENDPOINTS_PER_PAGE, after=after
            )
            found += page.endpoints
            after = page.next
            if after is None:
                return endpoint_statuses(found, self._stats(token).inboxes)

    def stats(self) -> StatsResult:
        """Return statistics and problems at one instant."""
        return stats_result(self.url, self._stats(self._operator()))

    def rules(self) -> RuleList:
        """Return the access rules in the order in which they are applied."""
        return self.api.get("/v1/rules", RuleList, token=self._operator())

    def add_rule(self, rule: AccessRule) -> RuleList:
        """Add a rule, replacing one with the same patterns, key and priority."""
        return self.api.post("/v1/rules", rule, RuleList, token=self._operator())

    def remove_rule(
        self, from_: str, to: str, from_key: str | None, priority: int | None
    ) -> RuleList:
        """Remove one rule of a pair, or all. Raises `RemoteError` if there is no such rule."""
        which = {"from": from_, "to": to, "fromKey": from_key, "priority": priority}
        return self.api.delete("/v1/rules", RuleList, token=self._operator(), **which)

    def check_config(self, file: Path | None) -> ConfigCheck:
        """Check whether the relay would accept `file`, or report the state of its own."""
        token = self._operator()
        if file is not None:
            return self._put_config(file, token, dry_run=True)
        state = self.api.get("/v1/config", ConfigState, token=token)
        return ConfigCheck(
            file=f"config.json of {self.url}",
            exists=bool(state.config),
            valid=not state.problem,
            problem=state.problem,
            notes=state.notes,
        )

    def save_config(self, file: Path) -> ConfigCheck:
        """Make `file` the relay's `config.json`, if it is valid."""
        return self._put_config(file, self._operator(), dry_run=False)

    def config(self) -> tuple[dict[str, Any], str]:
        """Return the effective settings, and why the relay's own file is ignored, if it is."""
        state = self.api.get("/v1/config", ConfigState, token=self._operator())
        return state.settings, state.problem

    # Tokens

    def _operator(self) -> Token:
        """Return the operator's token. Raises `CredentialMissing` without one."""
        token = self._operator_if_given()
        if token is NO_TOKEN:
            raise CredentialMissing(OPERATOR_TOKEN_NEEDED)
        return token

    def _agent_or_operator(self, sender: str | None) -> Token:
        """Return the token of the agent whose keys are given, else the operator's."""
        identity = self.credentials.identity(sender)
        if identity is not None:
            return self.api.log_in(identity)
        if sender is not None:
            raise keys_missing(sender)
        return self._operator()

    def _operator_if_given(self) -> Token:
        text = self._operator_token.for_relay()
        return NO_TOKEN if text is None else Token(Role.OPERATOR, text)

    def _on_accepted(self, token: Token) -> None:
        if token.role is Role.OPERATOR:
            self._operator_token.remember(token.text)

    def _reader(self, subject: str) -> Token:
        """Return a token that may read the mailbox of `subject`: its agent's or the operator's."""
        validate_subject(subject)
        token = self._operator_if_given()
        if token is not NO_TOKEN and not self.credentials.has_key_of(subject):
            return token
        return self.api.log_in(self.credentials.require_identity(subject))

    # Requests

    def _register(self, subject: str) -> None:
        validate_subject(subject)
        if subject.startswith(AUTO_MAILBOX_PREFIX):
            return  # a served relay creates the mailbox when the message arrives
        path = f"/v1/endpoints/{path_segment(subject)}"
        self.api.put(path, b"", EndpointInfo, token=self._operator())

    def _lease(
        self, subject: str, limit: int, max_size_bytes: int | None, token: Token
    ) -> InboxResponse:
        return self.api.get(
            f"/v1/inbox/{path_segment(subject)}",
            InboxResponse,
            token=token,
            limit=limit,
            max_size_bytes=max_size_bytes,
        )

    def _release(self, subject: str, leased: InboxResponse, token: Token) -> None:
        if leased.messages:
            nacked = NackRequest(ids=[one.id for one in leased.messages], release=True)
            self.api.post(
                f"/v1/inbox/{path_segment(subject)}/nack", nacked, CountResponse, token=token
            )

    def _inbox_stats(self, subject: str, token: Token) -> InboxStats | None:
        """Return the counts of one mailbox; only the operator may see them."""
        if token.role is not Role.OPERATOR:
            return None
        inboxes = self._stats(token).inboxes
        return next((one for one in inboxes if one.subject == subject), None)

    def _stats(self, token: Token) -> RelayStats:
        return self.api.get("/v1/stats", RelayStats, token=token, inboxes=_INBOXES_MAX)

    def _dead_letters(self, subject: str | None, *, group: bool) -> DeadLetterResponse:
        return self.api.get(
            "/v1/dead-letters",
            DeadLetterResponse,
            token=self._operator(),
            subject=subject,
            group=group,
            limit=_DEAD_LETTERS_MAX,
        )

    def _put_config(self, file: Path, token: Token, *, dry_run: bool) -> ConfigCheck:
        try:
            content = read_file(file, config_file_max_bytes)
        except OSError as problem:
            return ConfigCheck(str(file), True, False, f"cannot be read: {problem.strerror}", [])
        try:
            state = self.api.put("/v1/config", content, ConfigState, token=token, dry_run=dry_run)
        except InvalidInput as problem:
            return ConfigCheck(str(file), True, False, str(problem), [])
        return ConfigCheck(str(file), True, True, "", state.notes)
