"""Names at a served relay: what the operator does with them, and their upkeep.

Rule 1  A connection ends when its name goes to another key, is freed, or needs the operator by new
        settings.
Rule 2  A name expires only if its agent did nothing but bind it, no message waits for it, no one
        asked for its keys, and no access rule names it. So no other agent can rely on it.
Rule 3  Upkeep checks a few names at a time: it never delays messages.
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from functools import partial

import msgspec
from msgspec import UNSET

from waypost.policy.names import NamesConfig, is_expired
from waypost.relay.relay import Relay
from waypost.server.identity.authenticator import Authenticator
from waypost.server.identity.binding_file import Binding
from waypost.server.identity.errors import IdentitiesNotSaved
from waypost.server.sessions.hub import Hub
from waypost.server.webhooks.webhooks import Webhooks
from waypost.wire.frames import CLOSE_FORBIDDEN
from waypost.wire.handshake import signing_key_from, validate_agent_subject
from waypost.wire.http_bodies import AUTO_MAILBOX_PREFIX
from waypost.wire.name_bodies import RotationRequest

log = logging.getLogger("waypost.server")

INTERVAL_US = 1_000_000
CHECKED_MAX = 500
"""Unused names checked in one step."""

FREED_TEXT = "the operator took this name from your key"
ROTATED_TEXT = "this name has a new key: connect with the key file that replaced yours"
RESERVED_TEXT = "this name now needs a key that the operator bound to it"


def names_in_force(relay: Relay) -> NamesConfig | None:
    """Return the settings of names; None while `config.json` is invalid: they are unknown then."""
    return None if relay.settings_file.problem else relay.settings.names


class Names:
    """The names of one served relay."""

    def __init__(
        self,
        relay: Relay,
        authenticator: Authenticator,
        hub: Hub,
        webhooks: Webhooks,
        is_own: Callable[[str], bool] = lambda subject: True,
    ) -> None:
        """Take `is_own(subject)`: whether its messages are at this relay, and not at another one
        with the same identities."""
        self._is_own = is_own
        self._relay = relay
        self._authenticator = authenticator
        self._bindings = authenticator.bindings
        self._hub = hub
        self._webhooks = webhooks
        self._admitted_under = relay.settings.names
        self._next = 0
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """End the upkeep."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def bind(self, subject: str, public_key: str, *, replace: bool = False) -> Binding:
        """Bind `subject` to a key; with `replace`, take it from another one first.

        Raises `InvalidInput`, `SubjectTaken`, `TooManyIdentities` or `IdentitiesNotSaved`.
        """
        validate_agent_subject(subject)
        signing_key_from(public_key)
        before = self._authenticator.key_of(subject)
        now_ms = self._relay.now_us() // 1000
        binding = await asyncio.to_thread(
            self._bindings.bind_by_operator, subject, public_key, now_ms, replace=replace
        )
        if before not in (None, public_key):
            self._hub.disconnect(subject, CLOSE_FORBIDDEN, FREED_TEXT)
            await self._webhooks.release(subject)
        return binding

    async def unbind(self, subject: str) -> Binding:
        """Free `subject` and end its connection. Raises `NameNotBound`, `IdentitiesNotSaved`."""
        binding = await asyncio.to_thread(self._bindings.unbind, subject)
        self._hub.disconnect(subject, CLOSE_FORBIDDEN, FREED_TEXT)
        await self._webhooks.release(subject)
        return binding

    async def rotate(self, request: RotationRequest, origins: Collection[str]) -> None:
        """Move a name to another key as its owner asks, and end the connections of the old one.

        Raises as `Authenticator.rotate` does.
        """
        rotate = partial(
            self._authenticator.rotate,
            **msgspec.structs.asdict(request),
            origins=origins,
            now_ms=self._relay.now_us() // 1000,
        )
        if await asyncio.to_thread(rotate):
            self._hub.disconnect(request.subject, CLOSE_FORBIDDEN, ROTATED_TEXT)
        # Also if the name was moved before: a crash may have come between.
        await self._webhooks.move(request.subject, request.public_key, request.new_public_key)

    async def keep_up(self) -> None:
        """Do one step of the upkeep."""
        self._end_reserved()
        expired = self._choose_expired()
        try:
            if self._bindings.has_unsaved_uses:
                await asyncio.to_thread(self._bindings.save_uses)
            freed = await asyncio.to_thread(self._bindings.expire, expired) if expired else []
        except IdentitiesNotSaved as problem:
            log.warning("names: %s", problem)
            return
        for subject in freed:
            self._remove_mailbox(subject)
            await self._webhooks.release(subject)
        if freed:
            log.info("%d unused names expired, the first is %s", len(freed), freed[0])

    async def _run(self) -> None:
        while True:
            await self._relay.wait_until(self._relay.now_us() + INTERVAL_US)
            try:
                await self.keep_up()
            except Exception:
                log.exception("the upkeep of names failed")

    def _end_reserved(self) -> None:
        """End the connections whose names need the operator since the settings changed."""
        names = self._relay.settings.names
        if names is self._admitted_under:
            return
        self._admitted_under = names
        for session in self._hub.connected():
            binding = self._bindings.get(session.subject)
            if binding is not None and not self._authenticator.admits(binding):
                session.disconnect(RESERVED_TEXT, CLOSE_FORBIDDEN)

    def _choose_expired(self) -> list[str]:
        """Return the names to free among the next few unused ones; note those in use."""
        names, now_ms = names_in_force(self._relay), self._relay.now_us() // 1000
        found = self._bindings.unused(self._next, CHECKED_MAX)
        self._next = self._next + len(found) if len(found) == CHECKED_MAX else 0
        expired: list[str] = []
        for one in filter(lambda binding: self._is_own(binding.subject), found):
            if not self._is_idle(one.subject):
                self._bindings.note_use(one.subject)
            elif names is not None and is_expired(one.at_ms, now_ms, len(self._bindings), names):
                expired.append(one.subject)
        if not expired:
            return expired
        rules = self._relay.access.list_rules()
        named = {name for rule in rules for name in (rule.from_, rule.to)}
        keys = {rule.from_key for rule in rules if rule.from_key is not UNSET}
        return [
            one
            for one in expired
            if one not in named and self._authenticator.key_of(one) not in keys
        ]

    def _remove_mailbox(self, subject: str) -> None:
        """Remove the mailbox of an expired name, if the next message would create it again."""
        made_again = subject.startswith(AUTO_MAILBOX_PREFIX)
        is_free = self._bindings.get(subject) is None and self._is_idle(subject)
        if made_again and is_free and self._relay.get_endpoint(subject) is not None:
            self._relay.unregister_endpoint(subject)

    def _is_idle(self, subject: str) -> bool:
        """Return whether no agent is connected as `subject`, and no message waits for it."""
        if self._hub.is_connected(subject):
            return False
        inspector = self._relay.inspect()
        return not inspector.has_mailbox(subject) or inspector.is_empty(subject)
