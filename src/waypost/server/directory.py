"""The directory of a served relay: cards of agents, who may see them, and their presence.

Rule 1  `policy.directory` decides who sees whom; the relay knows who exchanged messages.
Rule 2  A page looks at a bounded number of names, a few at a time: it never delays messages.
Rule 3  A send pays for the search of a similar name only if its recipient has never connected, and
        then once, until another name is bound. There are few searches in a second: a flood of
        names gets no more.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import msgspec

from waypost.policy.bounds import (
    directory_page_max_names,
    notes_in_memory_max,
    similar_names_per_second_max,
)
from waypost.policy.directory import (
    DirectoryMode,
    default_mode,
    may_see,
    reveals_names,
    similar_names,
)
from waypost.policy.reserved_names import ANONYMOUS, OPERATOR
from waypost.policy.subjects import is_literal
from waypost.relay.relay import Relay
from waypost.server.identity.authenticator import Authenticator
from waypost.server.identity.binding_file import Binding
from waypost.server.sessions.hub import Hub
from waypost.wire.cards import NO_CARD, AgentCard, AgentInfo, AgentList
from waypost.wire.envelopes import instant
from waypost.wire.results import NeverConnected, PublishResult

_SECOND_US = 1_000_000
_TURN_NAMES = 100
"""Names looked at before other tasks get their turn."""


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether an agent is connected, and when it was last seen, in µs; None if that is unknown."""

    connected: bool = False
    last_seen_us: int | None = None


PresenceElsewhere = Callable[[Sequence[str]], Awaitable[Mapping[str, Presence]]]


async def _unknown(subjects: Sequence[str]) -> Mapping[str, Presence]:
    return {}


class Directory:
    """The agents of one relay, as others may see them. `is_local`: only this machine reaches it."""

    def __init__(
        self, relay: Relay, authenticator: Authenticator, hub: Hub, mode: DirectoryMode | None
    ) -> None:
        self._relay = relay
        self._authenticator = authenticator
        self._bindings = authenticator.bindings
        self._hub = hub
        self._mode = mode
        self.is_local = False
        self._presence_elsewhere: PresenceElsewhere = _unknown
        self._notes: dict[str, NeverConnected] = {}
        self._notes_of = -1
        self._searches = 0
        self._searches_since_us = 0

    @property
    def mode(self) -> DirectoryMode:
        """Who may see whom."""
        return self._mode or default_mode(is_local=self.is_local)

    def sees(self, viewer: str, subject: str) -> bool:
        """Return whether `viewer`, an agent or the operator, sees the agent `subject`."""
        if viewer in (subject, OPERATOR):
            return True
        mode = self.mode
        exchanged = mode == "contacts" and self._relay.inspect().have_exchanged(viewer, subject)
        return may_see(mode, has_exchanged=exchanged)

    async def find(self, viewer: str, skill: str | None, after: str, limit: int) -> AgentList:
        """Return a page of the agents that `viewer` sees, with `skill` if given."""
        names = self._bindings.names_after(
            after, directory_page_max_names, with_card=skill is not None
        )
        is_last = len(names) < directory_page_max_names
        found: list[AgentInfo] = []
        for at, name in enumerate(names, start=1):
            if at % _TURN_NAMES == 0:
                await asyncio.sleep(0)
            binding = self._bindings.get(name)
            if binding is None or not _has_skill(binding, skill) or not self.sees(viewer, name):
                continue
            found.append(self._info(binding))
            if len(found) == limit:
                is_end = is_last and at == len(names)
                await self._add_presence(found)
                return AgentList(agents=found, next=None if is_end else name)
        await self._add_presence(found)
        return AgentList(agents=found, next=None if is_last else names[-1])

    async def get(self, viewer: str, subject: str) -> AgentInfo | None:
        """Return one agent; None if there is none that `viewer` sees."""
        binding = self._bindings.get(subject)
        if binding is None or not self.sees(viewer, subject):
            return None
        found = self._info(binding)
        await self._add_presence([found])
        return found

    def ask_elsewhere(self, presence: PresenceElsewhere) -> None:
        """Learn the presence of agents of other partitions from `presence`."""
        self._presence_elsewhere = presence

    def presence_of(self, subject: str) -> Presence:
        """Return the presence of an agent of this partition."""
        connected = self._hub.is_connected(subject)
        return Presence(connected, None if connected else self._hub.last_seen_us(subject))

    async def _add_presence(self, agents: Sequence[AgentInfo]) -> None:
        """Complete agents of other partitions, as far as these answer."""
        elsewhere = await self._presence_elsewhere([one.subject for one in agents])
        for one in agents:
            if (there := elsewhere.get(one.subject)) is not None:
                one.connected = there.connected
                one.last_seen = _instant(there.last_seen_us)

    async def set_card(self, subject: str, card: AgentCard) -> AgentInfo:
        """Keep the card of an agent. Raises `TooManyChanges`, `TooManyCards`, `NameNotBound` or
        `IdentitiesNotSaved`."""
        now_ms = self._relay.now_us() // 1000
        return self._info(
            await asyncio.to_thread(self._authenticator.set_card, subject, card, now_ms)
        )

    def note_of(
        self, sender: str, subject: str, result: PublishResult
    ) -> NeverConnected | msgspec.UnsetType:
        """Return what `sender` may know about a recipient that has never connected, if so."""
        if self._bindings.is_known(subject) or result.rejected or not is_literal(subject):
            return msgspec.UNSET
        if sender != OPERATOR and not reveals_names(
            self.mode,
            is_anonymous=sender == ANONYMOUS,
            anyone_may_bind=self._anyone_may_bind(),
        ):
            return msgspec.UNSET
        if self._notes_of != self._bindings.version or len(self._notes) >= notes_in_memory_max:
            self._notes, self._notes_of = {}, self._bindings.version
        if subject not in self._notes:
            if not self._may_search():
                return NeverConnected()
            self._notes[subject] = NeverConnected(did_you_mean=self._similar(subject))
        return self._notes[subject]

    def _anyone_may_bind(self) -> bool:
        """Return whether names are open; while `config.json` is invalid, that is unknown."""
        relay = self._relay
        return not relay.settings_file.problem and relay.settings.names.policy == "open"

    def _may_search(self) -> bool:
        now_us = self._relay.now_us()
        if not 0 <= now_us - self._searches_since_us < _SECOND_US:
            self._searches, self._searches_since_us = 0, now_us
        self._searches += 1
        return self._searches <= similar_names_per_second_max

    def _similar(self, subject: str) -> str:
        """Return the name that is probably meant: of an agent that is connected or active."""
        found = [one for one in map(self._bindings.get, similar_names(subject)) if one is not None]
        if not found:
            return ""
        best = min(
            found,
            key=lambda one: (not self._hub.is_connected(one.subject), one.unused, one.subject),
        )
        return best.subject

    def _info(self, binding: Binding) -> AgentInfo:
        card, presence = binding.card or NO_CARD, self.presence_of(binding.subject)
        return AgentInfo(
            subject=binding.subject,
            public_key=binding.public_key,
            description=card.description,
            skills=card.skills,
            version=card.version,
            accepts_requests=card.accepts_requests,
            connected=presence.connected,
            last_seen=_instant(presence.last_seen_us),
        )


def _instant(at_us: int | None) -> datetime | None:
    return None if at_us is None else instant(at_us)


def _has_skill(binding: Binding, skill: str | None) -> bool:
    return skill is None or (binding.card is not None and skill in binding.card.skills)
