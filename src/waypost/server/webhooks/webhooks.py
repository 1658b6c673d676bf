"""The webhooks of a served relay: what agents and the operator do with them.

Rule 1  An agent has at most one webhook, and each has a secret of its own, which only the call that
        sets it returns.
Rule 2  A webhook ends with the ownership of its name: the next owner does not inherit it.
Rule 3  Agents change and test webhooks a few times a minute: each change is a write, each test a
        connection.
"""

import asyncio
import logging
from collections.abc import Mapping
from secrets import token_bytes

from waypost.policy.bounds import (
    webhook_changes_per_agent_minute_max,
    webhook_changes_per_minute_max,
)
from waypost.policy.own_changes import OwnChanges
from waypost.policy.webhooks import check_addresses, check_host, is_address, parse_url
from waypost.relay.relay import Relay
from waypost.server.identity.authenticator import Authenticator
from waypost.server.identity.errors import NameNotBound
from waypost.server.sessions.hub import Hub
from waypost.server.webhooks.errors import (
    HostNotAllowed,
    NoWebhook,
    TooManyWebhookChanges,
    WebhookNotSaved,
)
from waypost.server.webhooks.notifier import Notifier
from waypost.server.webhooks.registry import Registry, Webhook
from waypost.server.webhooks.sender import Sender
from waypost.wire.envelopes import instant
from waypost.wire.webhook_bodies import NewWebhook, NoticeOutcome, WebhookInfo, WebhookRequest
from waypost.wire.webhook_signatures import SECRET_BYTES, secret_text

log = logging.getLogger("waypost.server")

FILE = "webhooks.json"
TEST_TIMEOUT_S = 30.0


class Webhooks:
    """The webhooks of one served relay."""

    def __init__(self, relay: Relay, authenticator: Authenticator, hub: Hub) -> None:
        self._relay = relay
        self._authenticator = authenticator
        self._hub = hub
        self._registry = Registry(relay.inspect().data_dir / FILE, authenticator.key_of)
        sender = Sender(lambda: relay.settings.webhooks)
        self._notifier = Notifier(relay, sender, self._in_absence)
        self._changes = OwnChanges(
            "webhooks", webhook_changes_per_agent_minute_max, webhook_changes_per_minute_max
        )
        relay.on_waiting(self._notifier.wake)
        hub.on_leave(self._notifier.wake)
        for subject in self._registry:
            self._notifier.wake(subject)

    @property
    def notices(self) -> Mapping[str, int]:
        """Tries to post notices since the start, by outcome."""
        return self._notifier.counts

    async def close(self) -> None:
        """End all notices."""
        await self._notifier.close()

    async def set(self, subject: str, request: WebhookRequest) -> NewWebhook:
        """Set the webhook of an agent, with a new secret; an earlier one ends.

        Raises `InvalidInput`, `NameNotBound` or a `WebhookError`.
        """
        self._check_url(request.url)
        public_key = self._authenticator.key_of(subject)
        if public_key is None:
            raise NameNotBound(subject)
        self._admit_change(subject)
        webhook = Webhook(
            subject=subject,
            public_key=public_key,
            url=request.url,
            content=request.content,
            secret=secret_text(token_bytes(SECRET_BYTES)),
            set_at_ms=self._relay.now_us() // 1000,
        )
        await self._registry.set(webhook)
        self._notifier.forget(subject)
        self._notifier.wake(subject)
        return NewWebhook(
            subject=subject,
            url=webhook.url,
            content=webhook.content,
            set_at=instant(webhook.set_at_ms * 1000),
            secret=webhook.secret,
        )

    def get(self, subject: str) -> WebhookInfo:
        """Return the webhook of an agent, without its secret. Raises `NoWebhook`."""
        webhook = self._require(subject)
        return WebhookInfo(
            subject=subject,
            url=webhook.url,
            content=webhook.content,
            set_at=instant(webhook.set_at_ms * 1000),
            last=self._notifier.last(subject),
        )

    async def remove(self, subject: str) -> WebhookInfo:
        """Remove the webhook of an agent; return what it was. Raises a `WebhookError`."""
        removed = self.get(subject)
        self._admit_change(subject)
        await self._registry.remove(subject)
        self._notifier.forget(subject)
        return removed

    async def test(self, subject: str) -> NoticeOutcome:
        """Post a notice that announces nothing, now and once; return the outcome.

        Raises a `WebhookError`.
        """
        webhook = self._require(subject)
        self._admit_change(subject)
        try:
            async with asyncio.timeout(TEST_TIMEOUT_S):
                return await self._notifier.test(webhook)
        except TimeoutError:
            problem = "other notices to this host have not ended yet: try again later"
            return NoticeOutcome(at=instant(self._relay.now_us()), problem=problem)

    async def release(self, subject: str) -> None:
        """Remove the webhook of a name that has lost its owner."""
        if self._registry.get(subject) is not None:
            return
        self._notifier.forget(subject)
        try:
            await self._registry.remove(subject)
        except WebhookNotSaved as problem:  # it has no effect for another key
            log.warning("webhooks: %s", problem)

    async def move(self, subject: str, old_key: str, new_key: str) -> None:
        """Keep the webhook of an agent that has rotated its key."""
        try:
            await self._registry.move(subject, old_key, new_key)
        except WebhookNotSaved as problem:
            log.warning("webhooks: %s; %s has to set it again", problem, subject)

    def _in_absence(self, subject: str) -> Webhook | None:
        """Return the webhook of an agent that may connect and is not connected, or None."""
        webhook = self._registry.get(subject)
        if webhook is None or self._hub.stopping or self._hub.is_connected(subject):
            return None
        return webhook if self._authenticator.holds(subject, webhook.public_key) else None

    def _require(self, subject: str) -> Webhook:
        webhook = self._registry.get(subject)
        if webhook is None:
            raise NoWebhook(subject)
        return webhook

    def _check_url(self, text: str) -> None:
        """Raise `InvalidInput` or `HostNotAllowed`; names are resolved when a notice is posted."""
        url = parse_url(text)
        verdict = check_host(url, self._relay.settings.webhooks)
        problem = verdict.detail
        if not problem and is_address(url.host):
            problem = check_addresses(url, [url.host], private=verdict.private)
        if problem:
            raise HostNotAllowed(problem)

    def _admit_change(self, subject: str) -> None:
        """Count a change. Raises `TooManyWebhookChanges`."""
        verdict = self._changes.admit(subject, self._relay.now_us() // 1000)
        if not verdict.allowed:
            raise TooManyWebhookChanges(verdict.detail, verdict.retry_after_ms)
