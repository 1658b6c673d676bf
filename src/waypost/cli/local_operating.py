"""Circuit breakers, scheduled messages and agents of a relay on this machine."""

from pathlib import Path
from typing import NoReturn

from waypost.cli.local import COUNTED_MAX_BYTES, LocalRelay, journaled_breakers
from waypost.policy.subjects import validate_subject
from waypost.relay.data_dir import owner_of
from waypost.relay.errors import RelayError
from waypost.relay.inspection.snapshot import count_recent_events
from waypost.relay.relay import Relay
from waypost.wire.breaker_bodies import BreakerInfo, BreakerReset
from waypost.wire.cards import AgentInfo
from waypost.wire.http_bodies import CountResponse
from waypost.wire.schedule_bodies import CancelResponse
from waypost.wire.scheduled import ScheduledMessage
from waypost.wire.stats_bodies import AgentConnection


class LocalBreakers:
    """The breakers of a relay on this machine. They are in its memory, so only it can reset one."""

    def __init__(self, relay: LocalRelay) -> None:
        self._relay = relay

    def breakers(self) -> dict[str, BreakerInfo]:
        """Return the breakers that are not closed, by endpoint; none if no relay is running."""
        self._relay.require()
        owner = owner_of(self._relay.data)
        return journaled_breakers(count_recent_events(self._relay.data, COUNTED_MAX_BYTES), owner)

    def reset_breaker(self, subject: str) -> BreakerReset:
        """Raise an error that explains who can reset a breaker."""
        validate_subject(subject)
        self._relay.require()
        root, owner = self._relay.data.root, owner_of(self._relay.data)
        if owner:
            raise RelayError(
                f"process {owner} runs the relay of {root}: reset a breaker at its URL (--url), or"
                " in its own program with Relay.reset_breaker"
            )
        raise RelayError(
            f"no relay is running in {root}, so there is nothing to reset: circuit breakers are"
            " kept in memory, and a relay starts with all of them closed"
        )


class LocalScheduled(LocalRelay):
    """A relay on this machine's disk, with the operations on its scheduled messages."""

    def scheduled(self, sender: str | None) -> tuple[list[ScheduledMessage], bool]:
        """Return the messages that are not due yet, and that these are all."""
        return self.snapshot(sender).scheduled(sender), False

    def cancel(self, ids: list[str], sender: str | None) -> CancelResponse:
        """Cancel messages that are not due yet."""
        if sender is not None:
            validate_subject(sender)
        self.require()

        async def act(relay: Relay) -> CancelResponse:
            cancelled = await relay.cancel(ids, sender)
            left = [one for one in dict.fromkeys(ids) if one not in cancelled]
            return CancelResponse(cancelled=cancelled, not_cancelled=left)

        return self.with_relay(act)


class LocalAgents:
    """Explains where connected agents are."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def agents(self) -> list[AgentConnection]:
        """Raise an error that explains how to list agents."""
        self._reject()

    def find_agents(self, skill: str | None, sender: str | None) -> list[AgentInfo]:
        """Raise an error that explains how to list agents."""
        self._reject()

    def agent(self, subject: str, sender: str | None) -> AgentInfo:
        """Raise an error that explains how to show an agent."""
        validate_subject(subject)
        self._reject()

    def disconnect(self, subject: str) -> CountResponse:
        """Raise an error that explains how to disconnect an agent."""
        validate_subject(subject)
        self._reject()

    def release_leases(self, subject: str) -> CountResponse:
        """Raise an error that explains how to release leases."""
        validate_subject(subject)
        self._reject()

    def _reject(self) -> NoReturn:
        raise RelayError(
            f"{self._root} is a data directory: agents connect to a served relay, so use its URL"
            " (--url); after a restart of the relay, no message is leased"
        )
