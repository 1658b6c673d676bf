"""The circuit breakers of a served relay, for its operator."""

from waypost.cli.remote.relay import RemoteRelay
from waypost.client.http import path_segment
from waypost.wire.breaker_bodies import BreakerInfo, BreakerList, BreakerReset


class RemoteBreakers(RemoteRelay):
    """A relay behind a URL, with the operations on its breakers."""

    def breakers(self) -> dict[str, BreakerInfo]:
        """Return the breakers that are not at rest, by endpoint."""
        return self.api.get("/v1/breakers", BreakerList, token=self._operator()).breakers

    def reset_breaker(self, subject: str) -> BreakerReset:
        """Close the breaker of an endpoint; return its state before."""
        path = f"/v1/breakers/{path_segment(subject)}/reset"
        return self.api.post(path, {}, BreakerReset, token=self._operator())
