"""Lookup tools: endpoints, registration, status, message history."""

from datetime import UTC, datetime
from typing import Annotated

from mcp.types import CallToolResult

from waypost.mcp.connection import McpConnection
from waypost.mcp.instructions import failure
from waypost.mcp.quoting import one_line, quoted, quoted_text
from waypost.mcp.rendering import error, plural, success, with_instructions
from waypost.mcp.tools import parameters
from waypost.mcp.tools.guard import guard_lines, guard_status
from waypost.mcp.tools.results import (
    AgentStatus,
    EndpointEntry,
    EndpointListing,
    HistoryEvent,
    MessageExplanation,
    RegisterOutcome,
    RelaySummary,
    ThreadEntry,
    ThreadListing,
)
from waypost.policy.errors import WaypostError
from waypost.policy.reserved_names import is_reserved
from waypost.policy.subjects import is_literal, matches_pattern, validate_pattern, validate_subject
from waypost.wire.history_bodies import MessageHistoryResponse, Thread
from waypost.wire.http_bodies import AUTO_MAILBOX_PREFIX
from waypost.wire.stats_bodies import RelayStats

ONLY_CONTACTS = (
    "Only agents you have sent to or received from: the relay shows the full list to its operator"
    " only. Ask the person you work for to start this program with --operator-token-file, or to"
    " give you the subject; relay_send accepts any subject you know."
)

OUTCOMES: dict[str, str] = {
    "accepted": "It waits in the mailbox, unread.",
    "leased": "It was delivered to the recipient and is not acknowledged yet.",
    "returned": "It was returned to the mailbox unprocessed, and waits again.",
    "acked": "The recipient has acknowledged it: done.",
    "rejected": "It was rejected, and not stored.",
    "failed": "It could not be delivered; the operator can see it among the dead letters.",
    "expired": "It expired unread.",
    "evicted": "It was evicted, unread, to make room in a full mailbox.",
    "redriven": "The operator has put it back into the mailbox, where it waits.",
    "queued": "Its time has come: it waits in the mailbox, unread.",
    "cancelled": "It was cancelled before it was due, and is not delivered.",
    "forwarded": "It is on its way to the part of the relay that serves the recipient.",
    "decided": "The part of the relay that serves the recipient has decided; ask it there.",
}
"""The outcome of a message, by the last event of its history."""

SCHEDULED = "It is scheduled, and not delivered yet."


class LookupTools:
    """Tools for what the agent of `connection` may see; with the operator's token, more."""

    def __init__(self, connection: McpConnection) -> None:
        self._connection = connection
        self._api = connection.api

    @with_instructions
    async def relay_list_endpoints(
        self,
        pattern: parameters.Pattern = ">",
        limit: parameters.Limit = 50,
        after: parameters.After = None,
    ) -> Annotated[CallToolResult, EndpointListing]:
        """List the agents you can send to.

        Without the operator's token these are the agents you already know; give an exact subject
        as pattern to check whether that agent has ever connected to this relay.
        """
        validate_pattern(pattern)
        if self._api.is_operator:
            return await self._all_endpoints(pattern, limit, after)
        found = {self._connection.subject, *self._connection.inbox.contacts()}
        if is_literal(pattern) and pattern not in found:
            if await self._api.card(pattern) is None:
                return success(
                    f"{pattern} has never connected to this relay. Check the spelling. You can"
                    f" still send to a subject under {AUTO_MAILBOX_PREFIX}: the message is stored"
                    " until that agent connects.",
                    EndpointListing(endpoints=[], is_complete=True, next=None),
                )
            found.add(pattern)
        names = sorted(
            one
            for one in found
            if matches_pattern(one, pattern) and not is_reserved(one) and one > (after or "")
        )
        more = names[limit - 1] if len(names) > limit else None
        entries = [
            EndpointEntry(subject=one, waiting=None, connected=None) for one in names[:limit]
        ]
        facts = EndpointListing(endpoints=entries, is_complete=False, next=more)
        return success("\n".join([*_endpoint_lines(facts), ONLY_CONTACTS]), facts)

    @with_instructions
    async def relay_register_endpoint(
        self, subject: parameters.EndpointSubject
    ) -> Annotated[CallToolResult, RegisterOutcome]:
        """Create a mailbox for a subject before its agent has ever connected.

        Rarely needed: you already have a mailbox, and subjects under agent. get theirs with the
        first message. Any other subject needs the operator's token.
        """
        validate_subject(subject)
        if self._api.is_operator:
            await self._api.register(subject)
            facts = RegisterOutcome(subject=subject, has_mailbox=True)
            return success(f"{subject} has a mailbox.", facts)
        if subject == self._connection.subject:
            await self._connection.agent()
            facts = RegisterOutcome(subject=subject, has_mailbox=True)
            return success(f"{subject} is you, and has a mailbox.", facts)
        if subject.startswith(AUTO_MAILBOX_PREFIX):
            facts = RegisterOutcome(subject=subject, has_mailbox=False)
            return success(
                f"{subject} needs no registration: it gets a mailbox with the first message.",
                facts,
            )
        return error(
            f"Only the relay's operator can create a mailbox for {subject}. Use a subject under"
            f" {AUTO_MAILBOX_PREFIX}, or ask the person you work for to start this program with"
            " --operator-token-file."
        )

    @with_instructions
    async def relay_status(self) -> Annotated[CallToolResult, AgentStatus]:
        """Show your subject and relay, the connection, your unread messages, and the limits of
        relay_send_and_wait."""
        connection, problem = self._connection, ""
        stats: RelayStats | None = None
        try:
            await connection.synced_inbox()
            if self._api.is_operator:
                stats = await self._api.stats()
        except WaypostError as raised:
            problem = failure(raised)
        if not problem and not connection.is_connected:
            problem = "The connection was lost; reconnecting."
        unread = connection.inbox.unread()
        facts = AgentStatus(
            subject=connection.subject,
            relay=connection.url,
            connected=connection.is_connected,
            problem=problem,
            unread_messages=len(unread),
            unread_bytes=sum(one.size for one in unread),
            unacknowledged=[one.ref for one in connection.inbox.read()],
            is_complete=connection.is_connected
            and not connection.pauses_large
            and not connection.is_shared,
            guard=guard_status(connection.guard, connection.subject),
            numbers=None if stats is None else _relay_summary(stats),
        )
        return success("\n".join(_status_lines(facts)), facts)

    @with_instructions
    async def relay_explain(
        self, message_id: parameters.ExplainedMessageId
    ) -> Annotated[CallToolResult, MessageExplanation]:
        """Show the history of a message: stored, rejected, delivered, acknowledged, expired.

        Covers the messages that you sent or received; with the operator's token, all messages.
        """
        history = await self._api.history(self._connection.inbox.id_of(message_id))
        if history is None:
            return error(
                f"The relay has no history of message {message_id} for you. Check the id; the"
                " message may belong to other agents or be too old. A rate-limited message has no"
                " id."
            )
        facts = _explanation(message_id, history)
        facts.thread = self._connection.inbox.ref(history.thread or message_id)
        lines = [f"{message_id}:"]
        for step in facts.steps:
            where = f" in {quoted(step.mailbox)}" if step.mailbox else ""
            detail = f": {quoted_text(step.detail)}" if step.detail else ""
            lines.append(f"- {step.at:%Y-%m-%d %H:%M:%S} UTC {step.what}{where}{detail}")
        for where, what in facts.outcome.items():
            lines.append(f"{quoted(where) if where else 'Outcome'}: {what}")
        lines.append(f'The whole conversation: relay_thread(thread="{facts.thread}")')
        return success("\n".join(lines), facts)

    @with_instructions
    async def relay_thread(
        self, thread: parameters.ThreadId
    ) -> Annotated[CallToolResult, ThreadListing]:
        """Show a conversation as a whole: who wrote to whom in which order, and the outcomes.

        Shows the messages that you sent or received, without their texts; with the operator's
        token, all messages.
        """
        found = await self._api.thread(self._connection.inbox.id_of(thread))
        if found is None:
            return error(
                f"The relay has no messages of thread {thread} for you. Check the id; the"
                " conversation may belong to other agents or be too old."
            )
        facts = self._thread(thread, found)
        lines = [f"{plural(len(facts.messages), 'message')} of thread {thread}:"]
        for one in facts.messages:
            way = "answers" if one.is_answer else "writes to"
            lines.append(
                f"- {one.message_id} at {one.at:%Y-%m-%d %H:%M:%S} UTC: {quoted(one.sender)} {way}"
                f" {quoted(one.recipient)}; {one.outcome}; {plural(one.calls_left, 'call')} left"
            )
        if not facts.is_complete:
            lines.append("There are more: only the first are shown.")
        return success("\n".join(lines), facts)

    def _thread(self, thread: str, found: Thread) -> ThreadListing:
        ref = self._connection.inbox.ref
        entries = [
            ThreadEntry(
                message_id=ref(one.id) if one.id else "(no id)",
                at=datetime.fromtimestamp(one.at_us / 1_000_000, UTC),
                sender=one.sender,
                recipient=one.endpoint,
                in_reply_to=None if one.parent is None else ref(one.parent),
                is_answer=one.answer,
                outcome=one.outcome,
                calls_left=one.calls_left,
            )
            for one in found.messages
        ]
        return ThreadListing(thread=thread, messages=entries, is_complete=not found.more)

    async def _all_endpoints(self, pattern: str, limit: int, after: str | None) -> CallToolResult:
        page = await self._api.endpoints(pattern, limit, after)
        stats = await self._api.stats()
        waiting = {one.subject: one.pending for one in stats.inboxes}
        connected = {one.subject for one in stats.connected}
        entries = [
            EndpointEntry(
                subject=one.subject,
                waiting=waiting.get(one.subject),
                connected=one.subject in connected,
            )
            for one in page.endpoints
        ]
        facts = EndpointListing(endpoints=entries, is_complete=page.next is None, next=page.next)
        return success("\n".join(_endpoint_lines(facts)), facts)


def _endpoint_lines(facts: EndpointListing) -> list[str]:
    lines = [f"{plural(len(facts.endpoints), 'endpoint')}:" if facts.endpoints else "None."]
    for one in facts.endpoints:
        known = []
        if one.connected is not None:
            known.append("connected" if one.connected else "not connected")
        if one.waiting is not None:
            known.append(f"{one.waiting:,} waiting")
        lines.append(f"- {quoted(one.subject)}" + (f" ({', '.join(known)})" if known else ""))
    if facts.endpoints:
        lines.append("Agents choose their names: a name proves no authority.")
    if facts.next is not None:
        lines.append(f'For more: after="{one_line(facts.next)}".')
    return lines


def _relay_summary(stats: RelayStats) -> RelaySummary:
    return RelaySummary(
        messages=stats.by_status,
        rejected=stats.rejected,
        mailboxes=stats.inboxes_total,
        connected_agents=len(stats.connected),
        is_storage_full=stats.storage_full,
        problems=stats.problems,
    )


def _status_lines(facts: AgentStatus) -> list[str]:
    state = "connected" if facts.connected else "not connected"
    lines = [f"You are {facts.subject} at {facts.relay}: {state}."]
    if facts.problem:
        lines.append(facts.problem)
    if facts.unread_messages:
        lines.append(
            f"{plural(facts.unread_messages, 'unread message')}, {facts.unread_bytes:,} bytes:"
            " call relay_inbox."
        )
    elif facts.connected:
        lines.append("No unread messages.")
    if facts.unacknowledged:
        ids = ", ".join(facts.unacknowledged[:10])
        count = plural(len(facts.unacknowledged), "message")
        lines.append(f"{count} read and not acknowledged: {ids}.")
    lines += guard_lines(facts.guard)
    if facts.numbers is not None:
        counts = ", ".join(f"{count:,} {what}" for what, count in facts.numbers.messages.items())
        lines.append(
            f"The relay: {counts}; {plural(facts.numbers.connected_agents, 'agent')} connected."
        )
        lines += map(one_line, facts.numbers.problems)
    return lines


def _explanation(message_id: str, history: MessageHistoryResponse) -> MessageExplanation:
    events = [
        HistoryEvent(
            at=datetime.fromtimestamp(one.at_us / 1_000_000, UTC),
            what=one.kind,
            mailbox=one.endpoint,
            detail=one.text,
        )
        for one in history.steps
    ]
    last = {one.mailbox: one.what for one in events if one.what in OUTCOMES}
    outcome = {mailbox: OUTCOMES[what] for mailbox, what in last.items()}
    for one in events:
        if last.get(one.mailbox) == "accepted" and ", due at " in one.detail:
            outcome[one.mailbox] = SCHEDULED
    return MessageExplanation(message_id=message_id, thread="", outcome=outcome, steps=events)
