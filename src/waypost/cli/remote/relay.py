"""The verbs on a served relay: the twin of `directory.Directory`.

Rule 1  Whoever has keys speaks as that agent. The operator's verbs go with the operator's token.
Rule 2  What a served relay does not tell is None, never a number made up.
"""

from collections.abc import Callable

import msgspec

from waypost.cli.facts import Inbox, Sent
from waypost.cli.remote.answers import InboxAnswer
from waypost.cli.remote.credentials import CredentialMissing, no_keys
from waypost.cli.remote.operating import Operating
from waypost.cli.results import sent_of
from waypost.client.http import NO_TOKEN, OPERATOR_TOKEN_NEEDED, RemoteError, Token, path_segment
from waypost.policy.subjects import is_literal, validate_subject
from waypost.relay.journal.history import HistoryEntry, MessageHistory
from waypost.wire.http_bodies import (
    AUTO_MAILBOX_PREFIX,
    AckRequest,
    CountResponse,
    EndpointInfo,
    MessageHistoryResponse,
    NackRequest,
    NewMessage,
    NewMessages,
    PublishResults,
)
from waypost.wire.identifiers import validate_message_id
from waypost.wire.outgoing import OutgoingMessage
from waypost.wire.payloads import encode_payload


class Served(Operating):
    """A relay behind a URL, from the command line."""

    def send(
        self,
        message: OutgoingMessage,
        sender: str | None,
        *,
        register: bool,
        wait_s: float | None = None,
    ) -> Sent:
        """Publish one message; with `wait_s`, as a connected agent that waits to be told."""
        message.check()
        if register:
            self._register(message.subject)
        identity = self.credentials.identity(sender)
        if identity is None and (sender is not None or wait_s is not None):
            raise no_keys(sender)
        if identity is not None and wait_s is not None:
            from waypost.cli.remote.agents import send_and_wait

            return send_and_wait(self.url, identity, message, wait_s)
        body = NewMessage(
            subject=message.subject,
            payload=msgspec.Raw(encode_payload(message.payload)),
            reply_to=message.reply_to,
            message_id=message.message_id,
        )
        token = self.operator_or_nobody() if identity is None else self.api.log_in(identity)
        try:
            # As one of many, so that a refusal comes as a result, with everything it tells.
            answer = self.api.post(
                "/v1/messages", NewMessages(messages=[body]), PublishResults, token=token
            )
        except RemoteError as problem:
            if problem.status == 401 and token is NO_TOKEN:
                raise CredentialMissing(
                    f"the relay at {self.url} takes no anonymous messages: {no_keys(None)}"
                ) from None
            raise
        names = [message.subject] if is_literal(message.subject) else []
        return sent_of(message.subject, answer.results[0], names)

    def inbox(self, subject: str, limit: int, max_size_bytes: int | None) -> Inbox:
        """What waits in a mailbox: handed out for a moment, and given back."""
        token = self.reader(subject)
        found = self._lease(subject, limit, max_size_bytes, token)
        self._give_back(subject, found, token)
        usage = self.usage_of(subject, token)
        return Inbox(
            subject=subject,
            messages=found.messages,
            pending=usage.pending if usage else None,
            leased=usage.leased if usage else None,
        )

    def consume(
        self,
        subject: str,
        limit: int,
        max_size_bytes: int | None,
        deliver: Callable[[Inbox], None],
    ) -> None:
        """Lease messages, hand them to `deliver`, and acknowledge them once it has returned.

        If it raises they wait again; if this process dies in it, once their lease is over.
        """
        token = self.reader(subject)
        found = self._lease(subject, limit, max_size_bytes, token)
        usage = self.usage_of(subject, token)
        others = usage.leased - len(found.messages) if usage else None
        pending = usage.pending if usage else None
        try:
            deliver(Inbox(subject, found.messages, pending, others, acknowledged=True))
        except BaseException:
            self._give_back(subject, found, token)
            raise
        if found.messages:
            asked = AckRequest(ids=[one.id for one in found.messages])
            self.api.post(
                f"/v1/inbox/{path_segment(subject)}/ack", asked, CountResponse, token=token
            )

    def explain(self, message_id: str) -> MessageHistory:
        """What happened to a message, as far as it is ours to know."""
        validate_message_id(message_id)
        token = self.operator_or_nobody()
        if token is NO_TOKEN:
            identity = self.credentials.identity(None)
            if identity is None:
                raise CredentialMissing(
                    f"{OPERATOR_TOKEN_NEEDED}; or the keys of its sender with --key"
                )
            token = self.api.log_in(identity)
        try:
            story = self.api.get(
                f"/v1/messages/{path_segment(message_id)}", MessageHistoryResponse, token=token
            )
        except RemoteError as problem:
            if problem.status != 404:
                raise
            raise RemoteError(
                f"the relay at {self.url} tells of no message {message_id}: it may be past its"
                " retention, of another relay (--url), or of another agent; rate-limited"
                " publishes get no id",
                404,
            ) from None
        steps = [HistoryEntry(s.at_us, s.seq, s.kind, s.endpoint, s.text) for s in story.steps]
        return MessageHistory(story.message_id, steps)

    def _register(self, subject: str) -> None:
        validate_subject(subject)
        token = self.operator_or_nobody()
        if token is NO_TOKEN and subject.startswith(AUTO_MAILBOX_PREFIX):
            return  # a served relay makes it when the message arrives
        path = f"/v1/endpoints/{path_segment(subject)}"
        self.api.put(path, b"", EndpointInfo, token=self.operator())

    def _lease(
        self, subject: str, limit: int, max_size_bytes: int | None, token: Token
    ) -> InboxAnswer:
        return self.api.get(
            f"/v1/inbox/{path_segment(subject)}",
            InboxAnswer,
            token=token,
            limit=limit,
            max_size_bytes=max_size_bytes,
        )

    def _give_back(self, subject: str, found: InboxAnswer, token: Token) -> None:
        if found.messages:
            asked = NackRequest(ids=[one.id for one in found.messages])
            self.api.post(
                f"/v1/inbox/{path_segment(subject)}/nack", asked, CountResponse, token=token
            )
