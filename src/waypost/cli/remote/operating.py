"""Names, agents, webhooks, breakers and scheduled messages of a served relay; its round trip."""

import statistics
import time

import msgspec

from waypost.cli.remote.credentials import keys_missing
from waypost.cli.remote.operator_token import CredentialMissing
from waypost.cli.remote.relay import RemoteRelay
from waypost.cli.results import PingResult
from waypost.client.http import NO_TOKEN, HttpClient, Token, path_segment
from waypost.client.webhooks import OwnWebhook
from waypost.policy.subjects import validate_subject
from waypost.wire.breaker_bodies import BreakerInfo, BreakerList, BreakerReset
from waypost.wire.cards import AgentInfo, AgentList
from waypost.wire.http_bodies import CountResponse, Health
from waypost.wire.name_bodies import BindRequest, NameInfo, NameList
from waypost.wire.schedule_bodies import CancelRequest, CancelResponse, ScheduledList
from waypost.wire.scheduled import ScheduledMessage
from waypost.wire.stats_bodies import AgentConnection, RelayStats

_NAMES_PER_PAGE = 10_000
_SCHEDULED_MAX = 1000
_AGENTS_PER_PAGE = 1000


class RemoteNames(RemoteRelay):
    """A relay behind a URL, with the operations on its names."""

    def names(self) -> list[NameInfo]:
        """Return every name that belongs to a key, sorted."""
        token = self._operator()
        found: list[NameInfo] = []
        after: str | None = None
        while True:
            page = self.api.get(
                "/v1/names", NameList, token=token, limit=_NAMES_PER_PAGE, after=after
            )
            found += page.names
            after = page.next
            if after is None:
                return found

    def bind_name(self, subject: str, public_key: str, *, replace: bool) -> NameInfo:
        """Bind a name to a key; with `replace`, take it from another one."""
        body = msgspec.json.encode(BindRequest(public_key=public_key, replace=replace))
        path = f"/v1/names/{path_segment(subject)}"
        return self.api.put(path, body, NameInfo, token=self._operator())

    def unbind_name(self, subject: str) -> NameInfo:
        """Free a name; return its last owner."""
        path = f"/v1/names/{path_segment(subject)}"
        return self.api.delete(path, NameInfo, token=self._operator())


class RemoteAgents(RemoteRelay):
    """A relay behind a URL, with the operations on its connected agents."""

    def agents(self) -> list[AgentConnection]:
        """Return the connected agents, in the order in which they connected."""
        stats = self.api.get("/v1/stats", RelayStats, token=self._operator(), inboxes=0)
        return stats.connected

    def find_agents(self, skill: str | None, sender: str | None) -> list[AgentInfo]:
        """Return the agents that `sender`, or else the operator, sees in the directory."""
        token = self._viewer(sender)
        found: list[AgentInfo] = []
        after: str | None = None
        while True:
            page = self.api.get(
                "/v1/agents",
                AgentList,
                token=token,
                skill=skill,
                limit=_AGENTS_PER_PAGE,
                after=after,
            )
            found += page.agents
            after = page.next
            if after is None:
                return found

    def agent(self, subject: str, sender: str | None) -> AgentInfo:
        """Return one of them. Raise an error if there is no such agent."""
        token = self._viewer(sender)
        path = f"/v1/agents/{path_segment(validate_subject(subject))}"
        return self.api.get(path, AgentInfo, token=token)

    def _viewer(self, sender: str | None) -> Token:
        """Return the token of the agent that looks into the directory, else the operator's."""
        has_keys = sender is not None or self.credentials.identity(None) is not None
        if not has_keys and self._operator_if_given() is NO_TOKEN:
            raise CredentialMissing(
                "agents see the directory, and so does the operator: look as an agent with"
                " --sender SUBJECT or --key FILE, or give the operator's token with"
                " --operator-token-file FILE"
            )
        return self._agent_or_operator(sender)

    def disconnect(self, subject: str) -> CountResponse:
        """End the connection of an agent. Raise an error if it is not connected."""
        path = f"/v1/agents/{path_segment(subject)}/disconnect"
        return self.api.post(path, {}, CountResponse, token=self._operator())

    def release_leases(self, subject: str) -> CountResponse:
        """Return the leased messages of an agent to its queue."""
        path = f"/v1/agents/{path_segment(subject)}/release"
        return self.api.post(path, {}, CountResponse, token=self._operator())


class RemoteBreakers(RemoteRelay):
    """A relay behind a URL, with the operations on its breakers."""

    def breakers(self) -> dict[str, BreakerInfo]:
        """Return the breakers that are not at rest, by endpoint."""
        return self.api.get("/v1/breakers", BreakerList, token=self._operator()).breakers

    def reset_breaker(self, subject: str) -> BreakerReset:
        """Close the breaker of an endpoint; return its state before."""
        path = f"/v1/breakers/{path_segment(subject)}/reset"
        return self.api.post(path, {}, BreakerReset, token=self._operator())


class RemoteWebhooks(RemoteRelay):
    """A relay behind a URL, with the webhooks of agents: as the agent, or as the operator."""

    def webhook(self, subject: str) -> OwnWebhook:
        """Return the webhook of an agent, for all operations on it."""
        identity = self.credentials.identity(subject)
        if identity is not None:
            return OwnWebhook.of(self.api, identity)
        token = self._operator_if_given()
        if token is NO_TOKEN:
            raise keys_missing(subject)
        return OwnWebhook(self.api, subject, token)


class RemoteScheduled(RemoteRelay):
    """A relay behind a URL, with the operations on scheduled messages: an agent's own, or all."""

    def scheduled(self, sender: str | None) -> tuple[list[ScheduledMessage], bool]:
        """Return the messages that are not due yet, and whether there are more."""
        found = self.api.get(
            "/v1/scheduled",
            ScheduledList,
            token=self._agent_or_operator(sender),
            limit=_SCHEDULED_MAX,
        )
        return found.messages, found.more

    def cancel(self, ids: list[str], sender: str | None) -> CancelResponse:
        """Cancel messages that are not due yet."""
        asked = CancelRequest(ids=ids)
        path = "/v1/scheduled/cancel"
        return self.api.post(path, asked, CancelResponse, token=self._agent_or_operator(sender))


def ping_relay(url: str, count: int) -> PingResult:
    """Ask `count` times whether the relay is ready, on one connection; return the times.

    Raises `RemoteError` with the reason if it is not. The first request, which also connects, is
    not measured.
    """
    api = HttpClient(url)
    try:
        health = api.get("/readyz", Health)
        times_ms = []
        for _ in range(count):
            began = time.perf_counter()
            api.get("/readyz", Health)
            times_ms.append((time.perf_counter() - began) * 1000)
    finally:
        api.close()
    return PingResult(
        url=api.url,
        version=health.version,
        count=count,
        median_ms=round(statistics.median(times_ms), 3),
        min_ms=round(min(times_ms), 3),
        max_ms=round(max(times_ms), 3),
    )
