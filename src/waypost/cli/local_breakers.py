"""The circuit breakers of a data directory, as the journal of a running relay tells them."""

from waypost.cli.local import COUNTED_MAX_BYTES, LocalRelay, journaled_breakers
from waypost.policy.subjects import validate_subject
from waypost.relay.data_dir import owner_of
from waypost.relay.errors import RelayError
from waypost.relay.inspection.snapshot import count_recent_events
from waypost.wire.breaker_bodies import BreakerInfo, BreakerReset


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
