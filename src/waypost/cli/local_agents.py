"""The agents of a data directory: connections are in the memory of a served relay, so none."""

from pathlib import Path
from typing import NoReturn

from waypost.policy.subjects import validate_subject
from waypost.relay.errors import RelayError
from waypost.wire.http_bodies import AgentConnection, CountResponse


class LocalAgents:
    """Explains where connected agents are."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def agents(self) -> list[AgentConnection]:
        """Raise an error that explains how to list agents."""
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
