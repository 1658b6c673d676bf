"""Notices for agents that are not connected while messages wait for them.

Rule 1  A notice changes nothing about a message: it waits until it is acknowledged. A lost notice
        loses nothing, and after a restart the relay posts a new one.
Rule 2  An agent has one notice under way. It covers all messages that wait; later ones cause the
        next notice, `PAUSE_US` after this one: senders decide about messages, not about notices.
Rule 3  A notice that fails is tried again, as `policy.webhooks` decides, unless the agent has
        connected or emptied its mailbox meanwhile.
Rule 4  Publishing never waits for a webhook.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from secrets import token_bytes

import msgspec

from waypost.policy.bounds import webhook_max_messages, webhook_messages_max_bytes
from waypost.policy.webhooks import retry_delay_ms
from waypost.relay.relay import Relay
from waypost.server.webhooks.registry import Webhook
from waypost.server.webhooks.sender import PostResult, Request, Sender
from waypost.wire.envelopes import instant
from waypost.wire.http_bodies import Delivered
from waypost.wire.identifiers import UlidFactory
from waypost.wire.webhook_bodies import Notice, NoticeData, NoticeOutcome
from waypost.wire.webhook_signatures import signed_headers

log = logging.getLogger("waypost.server")

GATHER_US = 1_000_000
"""A notice waits this long for more messages, and for an agent that reads or connects by itself."""

PAUSE_US = 10_000_000


class _Agent:
    """What is known about the notices of one agent."""

    __slots__ = ("digest", "has_news", "last", "notice_at_us", "notice_id", "task")

    def __init__(self) -> None:
        self.has_news = False
        self.task: asyncio.Task[None] | None = None
        self.last: NoticeOutcome | None = None
        self.notice_id, self.notice_at_us, self.digest = "", 0, b""


class Notifier:
    """Posts notices. `webhook_of` returns the webhook of an agent that is to get them, or None."""

    def __init__(
        self, relay: Relay, sender: Sender, webhook_of: Callable[[str], Webhook | None]
    ) -> None:
        self._relay = relay
        self._sender = sender
        self._webhook_of = webhook_of
        self._agents: dict[str, _Agent] = {}
        self._ids = UlidFactory(token_bytes)
        self.counts = {"accepted": 0, "failed": 0, "given_up": 0}
        """Tries since the start by outcome; a failed one is followed by another."""
        self._closed = False

    def wake(self, subject: str) -> None:
        """Post a notice to `subject` if messages wait for it: soon, and not from this call."""
        if self._closed or self._webhook_of(subject) is None:
            return
        agent = self._agents.setdefault(subject, _Agent())
        agent.has_news = True
        if agent.task is None:
            agent.task = asyncio.get_running_loop().create_task(self._run(subject, agent))

    def last(self, subject: str) -> NoticeOutcome | None:
        """Return the outcome of the last try since the start, or None."""
        agent = self._agents.get(subject)
        return None if agent is None else agent.last

    def forget(self, subject: str) -> None:
        """End the notices of an agent whose webhook has changed."""
        agent = self._agents.pop(subject, None)
        if agent is not None and agent.task is not None:
            agent.task.cancel()

    async def test(self, webhook: Webhook) -> NoticeOutcome:
        """Post one notice that announces nothing, and return the outcome."""

        def write() -> Request:
            now_us, subject = self._relay.now_us(), webhook.subject
            data = NoticeData(subject=subject, waiting=self._relay.inspect().depth(subject))
            notice = Notice(type="webhook.test", timestamp=instant(now_us), data=data)
            return self._sign(webhook, self._new_id(now_us), notice)

        done = await self._sender.post(webhook.url, write)
        assert done is not None, "a test is always written"
        return self._outcome(done)

    async def close(self) -> None:
        """End all notices."""
        self._closed = True
        tasks = [one.task for one in self._agents.values() if one.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self, subject: str, agent: _Agent) -> None:
        try:
            while agent.has_news:
                await self._wait_us(GATHER_US)
                agent.has_news = False
                if await self._notify(subject, agent):
                    await self._wait_us(PAUSE_US)
        except Exception:
            log.exception("the notices of %s ended", subject)
        finally:
            agent.task = None

    async def _notify(self, subject: str, agent: _Agent) -> bool:
        """Post one notice until it is accepted or given up; return whether there was one."""
        failures = 0
        while True:
            webhook = self._webhook_of(subject)
            if webhook is None or not self._relay.inspect().depth(subject):
                return failures > 0
            done = await self._sender.post(webhook.url, partial(self._write, subject, agent))
            if done is None:
                return failures > 0
            agent.last = self._outcome(done)
            if not agent.last.problem:
                self.counts["accepted"] += 1
                return True
            failures += 1
            delay_ms = None if agent.last.final else retry_delay_ms(failures)
            if delay_ms is None:
                self._note_given_up(subject, agent.last)
                return True
            self.counts["failed"] += 1
            await self._wait_us(delay_ms * 1000)

    def _write(self, subject: str, agent: _Agent) -> Request | None:
        """Return the notice for an agent; None if it needs none any more."""
        webhook = self._webhook_of(subject)
        data = None if webhook is None else self._waiting(webhook)
        if webhook is None or data is None:
            return None
        self._number(agent, data)
        at = instant(agent.notice_at_us)
        notice = Notice(type="messages.waiting", timestamp=at, data=data)
        return self._sign(webhook, agent.notice_id, notice)

    def _sign(self, webhook: Webhook, notice_id: str, notice: Notice) -> Request:
        body, now_s = msgspec.json.encode(notice), self._relay.now_us() // 1_000_000
        return Request(signed_headers(webhook.secret, notice_id, now_s, body), body)

    def _outcome(self, done: PostResult) -> NoticeOutcome:
        return NoticeOutcome(
            at=instant(self._relay.now_us()),
            status=done.status,
            problem=done.problem,
            final=done.final,
        )

    def _waiting(self, webhook: Webhook) -> NoticeData | None:
        """Return what a notice says now; None if no message waits."""
        inspector, subject = self._relay.inspect(), webhook.subject
        if not inspector.has_mailbox(subject):
            return None
        size = webhook_messages_max_bytes
        found = inspector.peek(subject, webhook_max_messages, size, size)
        if not found.pending:
            return None
        data = NoticeData(subject=subject, waiting=found.pending)
        if webhook.content == "messages":
            data.messages = [
                Delivered(**msgspec.structs.asdict(one.envelope), parent=one.parent)
                for one in found.messages
            ]
        return data

    def _number(self, agent: _Agent, data: NoticeData) -> None:
        """Choose id and time of a notice: those of the try before, if it failed with this content.

        A receiver may ignore an id that it knows.
        """
        digest = sha256(msgspec.json.encode(data)).digest()
        failed = agent.last is not None and agent.last.problem
        if not failed or digest != agent.digest:
            agent.notice_at_us, agent.digest = self._relay.now_us(), digest
            agent.notice_id = self._new_id(agent.notice_at_us)

    def _new_id(self, now_us: int) -> str:
        return f"msg_{self._ids.make(now_us // 1000)}"

    def _note_given_up(self, subject: str, last: NoticeOutcome) -> None:
        self.counts["given_up"] += 1
        given_up = self.counts["given_up"]
        if given_up.bit_count() == 1:  # at 1, 2, 4, 8 …: does not fill the log
            log.warning(
                "%d notices were given up, the last to the webhook of %s: %s",
                given_up,
                subject,
                last.problem,
            )

    async def _wait_us(self, duration_us: int) -> None:
        await self._relay.wait_until(self._relay.now_us() + duration_us)
