"""Tools to look around: who is there, how things stand, what became of a message."""

from datetime import UTC, datetime
from typing import Annotated

from mcp.types import CallToolResult

from waypost.mcp.answers import answer, instructive, plural, problem
from waypost.mcp.connection import Presence
from waypost.mcp.instructions import failure
from waypost.mcp.tools import parameters as a
from waypost.mcp.tools.results import (
    EndpointSeen,
    EndpointsSeen,
    Explained,
    Registered,
    RelayNumbers,
    Status,
    Step,
)
from waypost.policy.errors import WaypostError
from waypost.policy.reserved_names import is_reserved
from waypost.policy.subjects import is_literal, matches_pattern, validate_pattern, validate_subject
from waypost.wire.http_bodies import MessageHistoryResponse, RelayStats

MAILBOXES_BY_THEMSELVES = "agent."

ONLY_ACQUAINTANCES = (
    "Only agents you have written to or heard from: the relay shows the whole list to its operator"
    " alone. Ask the person you work for to start this program with --operator-token-file, or to"
    " tell you the subject; relay_send takes any subject you know."
)

BECAME: dict[str, str] = {
    "accepted": "It waits in the mailbox, unread.",
    "leased": "It was handed to the recipient, who has not acknowledged it yet.",
    "returned": "It was given back unread, and waits again.",
    "acked": "The recipient has acknowledged it: done.",
    "rejected": "It was refused, and not stored.",
    "failed": "It could not be delivered; the operator can see it among the dead letters.",
    "expired": "It expired before anybody read it.",
    "evicted": "It had to make room for others in a full mailbox, unread.",
    "redriven": "The operator has put it back into the mailbox, where it waits.",
}
"""What the last thing that happened to a message means."""


class LookingTools:
    """What the agent of `presence` may see; with the operator's token, more."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence
        self._routes = presence.routes

    @instructive
    async def relay_list_endpoints(
        self, pattern: a.Pattern = ">", limit: a.Limit = 50, after: a.After = None
    ) -> Annotated[CallToolResult, EndpointsSeen]:
        """Find out whom you can write to.

        Without the operator's token these are the agents you already know; give the exact subject
        as pattern to learn whether that agent has ever been at this relay.
        """
        validate_pattern(pattern)
        if self._routes.is_operator:
            return await self._all_endpoints(pattern, limit, after)
        found = {self._presence.subject, *self._presence.desk.contacts()}
        if is_literal(pattern) and pattern not in found:
            if await self._routes.card(pattern) is None:
                return answer(
                    f"{pattern} has never been at this relay. Check the spelling. Under"
                    f" {MAILBOXES_BY_THEMSELVES} you may write all the same: it is stored until"
                    " that agent comes.",
                    EndpointsSeen(endpoints=[], is_complete=True, next=None),
                )
            found.add(pattern)
        names = sorted(
            one
            for one in found
            if matches_pattern(one, pattern) and not is_reserved(one) and one > (after or "")
        )
        more = names[limit - 1] if len(names) > limit else None
        seen = [EndpointSeen(subject=one, waiting=None, connected=None) for one in names[:limit]]
        facts = EndpointsSeen(endpoints=seen, is_complete=False, next=more)
        return answer("\n".join([*_endpoint_lines(facts), ONLY_ACQUAINTANCES]), facts)

    @instructive
    async def relay_register_endpoint(
        self, subject: a.NewEndpoint
    ) -> Annotated[CallToolResult, Registered]:
        """Make sure that a subject can be written to, before its agent was ever there.

        Seldom needed: your own mailbox is there, and subjects under agent. get theirs with the
        first message. For others it needs the operator's token.
        """
        validate_subject(subject)
        if self._routes.is_operator:
            await self._routes.register(subject)
            facts = Registered(subject=subject, has_mailbox=True)
            return answer(f"{subject} has a mailbox.", facts)
        if subject == self._presence.subject:
            await self._presence.agent()
            facts = Registered(subject=subject, has_mailbox=True)
            return answer(f"{subject} is you, and has its mailbox.", facts)
        if subject.startswith(MAILBOXES_BY_THEMSELVES):
            facts = Registered(subject=subject, has_mailbox=False)
            return answer(
                f"{subject} needs no registering: it gets a mailbox with the first message.",
                facts,
            )
        return problem(
            f"Only the relay's operator can give {subject} a mailbox. Use a subject under"
            f" {MAILBOXES_BY_THEMSELVES}, or ask the person you work for to start this program with"
            " --operator-token-file."
        )

    @instructive
    async def relay_status(self) -> Annotated[CallToolResult, Status]:
        """See who you are at which relay, whether you are connected, and what waits for you."""
        presence, trouble = self._presence, ""
        stats: RelayStats | None = None
        try:
            await presence.caught_up()
            if self._routes.is_operator:
                stats = await self._routes.stats()
        except WaypostError as wrong:
            trouble = failure(wrong)
        if not trouble and not presence.is_connected:
            trouble = "The connection was lost and is being made again."
        unread = presence.desk.unread()
        facts = Status(
            subject=presence.subject,
            relay=presence.url,
            connected=presence.is_connected,
            problem=trouble,
            unread_messages=len(unread),
            unread_bytes=sum(one.size for one in unread),
            unacknowledged=[one.message.id for one in presence.desk.read()],
            is_complete=presence.is_connected and not presence.is_crowded,
            numbers=None if stats is None else _relay_numbers(stats),
        )
        return answer("\n".join(_status_lines(facts)), facts)

    @instructive
    async def relay_explain(
        self, message_id: a.WhichMessage
    ) -> Annotated[CallToolResult, Explained]:
        """Find out what became of a message: stored, refused, read, acknowledged, expired.

        Tells of messages that you sent or received; with the operator's token, of every one.
        """
        story = await self._routes.story(message_id)
        if story is None:
            return problem(
                f"The relay tells you of no message {message_id}. Check the id; it may be of other"
                " agents, or too long ago. What the rate limit refused never got an id."
            )
        facts = _explained(story)
        lines = [f"{message_id}:"]
        for step in facts.steps:
            where = f" in {step.mailbox}" if step.mailbox else ""
            detail = f": {step.detail}" if step.detail else ""
            lines.append(f"- {step.at:%Y-%m-%d %H:%M:%S} UTC {step.what}{where}{detail}")
        lines += [f"{where or 'Outcome'}: {what}" for where, what in facts.outcome.items()]
        return answer("\n".join(lines), facts)

    async def _all_endpoints(self, pattern: str, limit: int, after: str | None) -> CallToolResult:
        page = await self._routes.endpoints(pattern, limit, after)
        stats = await self._routes.stats()
        waiting = {one.subject: one.pending for one in stats.inboxes}
        here = {one.subject for one in stats.connected}
        seen = [
            EndpointSeen(
                subject=one.subject,
                waiting=waiting.get(one.subject),
                connected=one.subject in here,
            )
            for one in page.endpoints
        ]
        facts = EndpointsSeen(endpoints=seen, is_complete=page.next is None, next=page.next)
        return answer("\n".join(_endpoint_lines(facts)), facts)


def _endpoint_lines(facts: EndpointsSeen) -> list[str]:
    lines = [f"{plural(len(facts.endpoints), 'endpoint')}:" if facts.endpoints else "None."]
    for one in facts.endpoints:
        known = []
        if one.connected is not None:
            known.append("connected" if one.connected else "away")
        if one.waiting is not None:
            known.append(f"{one.waiting:,} waiting")
        lines.append(f"- {one.subject}" + (f" ({', '.join(known)})" if known else ""))
    if facts.next is not None:
        lines.append(f'For more: after="{facts.next}".')
    return lines


def _relay_numbers(stats: RelayStats) -> RelayNumbers:
    return RelayNumbers(
        messages=stats.by_status,
        rejected=stats.rejected,
        mailboxes=stats.inboxes_total,
        connected_agents=len(stats.connected),
        is_storage_full=stats.storage_full,
        problems=stats.problems,
    )


def _status_lines(facts: Status) -> list[str]:
    state = "connected" if facts.connected else "not connected"
    lines = [f"You are {facts.subject} at {facts.relay}: {state}."]
    if facts.problem:
        lines.append(facts.problem)
    if facts.unread_messages:
        lines.append(
            f"{plural(facts.unread_messages, 'message')} to read, {facts.unread_bytes:,} bytes:"
            " call relay_inbox."
        )
    elif facts.connected:
        lines.append("Nothing new to read.")
    if facts.unacknowledged:
        ids = ", ".join(facts.unacknowledged[:10])
        count = plural(len(facts.unacknowledged), "message")
        lines.append(f"{count} read and not acknowledged: {ids}.")
    if facts.numbers is not None:
        held = ", ".join(f"{count:,} {what}" for what, count in facts.numbers.messages.items())
        lines.append(
            f"The relay: {held}; {plural(facts.numbers.connected_agents, 'agent')} connected."
        )
        lines += facts.numbers.problems
    return lines


def _explained(story: MessageHistoryResponse) -> Explained:
    steps = [
        Step(
            at=datetime.fromtimestamp(one.at_us / 1_000_000, UTC),
            what=one.kind,
            mailbox=one.endpoint,
            detail=one.text,
        )
        for one in story.steps
    ]
    last = {one.mailbox: one.what for one in steps if one.what in BECAME}
    outcome = {mailbox: BECAME[what] for mailbox, what in last.items()}
    return Explained(message_id=story.message_id, outcome=outcome, steps=steps)
