"""HTTP queries that the WebSocket protocol does not offer: history, agents, endpoints, statistics.

An agent may read the history of its own messages and look up another agent's card. The rest needs
the operator's token.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from waypost.client.http import HttpClient, RemoteError, Role, Token, path_segment
from waypost.client.identity import Identity
from waypost.policy.subjects import matches_pattern, validate_subject
from waypost.wire.cards import AgentInfo, AgentList
from waypost.wire.history_bodies import MessageHistoryResponse, Thread
from waypost.wire.http_bodies import EndpointInfo, EndpointList
from waypost.wire.identifiers import validate_message_id, validate_thread
from waypost.wire.sealing import Card
from waypost.wire.stats_bodies import RelayStats

T = TypeVar("T")

PAGE_SIZE = 1000
PAGES_MAX = 100
"""Pages of the directory for one question: a page may show none of the agents it looked at."""
THREADS = 4
INBOXES_MAX = 1000


class RelayApi:
    """The HTTP interface of one relay, as this agent or as the operator. Raises `RemoteError`."""

    def __init__(self, url: str, identity: Identity, operator_token: str | None) -> None:
        self._http = HttpClient(url)
        self.url = self._http.url
        self._identity = identity
        self._threads = ThreadPoolExecutor(THREADS, "waypost-mcp-http")
        self._operator = None if operator_token is None else Token(Role.OPERATOR, operator_token)

    @property
    def is_operator(self) -> bool:
        """Return whether an operator's token is present."""
        return self._operator is not None

    async def log_in(self) -> None:
        """Check that the relay accepts this agent's keys."""
        await self._run(lambda: self._http.log_in(self._identity))

    async def close(self) -> None:
        """Close the connections after running queries have ended."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._http.close()

    async def history(self, message_id: str) -> MessageHistoryResponse | None:
        """Return the visible history of a message; None if there is none."""
        validate_message_id(message_id)
        path = f"/v1/messages/{path_segment(message_id)}"

        def query() -> MessageHistoryResponse:
            token = self._operator or self._http.log_in(self._identity)
            return self._http.get(path, MessageHistoryResponse, token=token)

        return await self._unless_missing(query)

    async def thread(self, thread: str) -> Thread | None:
        """Return the visible messages of a thread; None if there are none."""
        path = f"/v1/threads/{path_segment(validate_thread(thread))}"

        def query() -> Thread:
            token = self._operator or self._http.log_in(self._identity)
            return self._http.get(path, Thread, token=token)

        return await self._unless_missing(query)

    async def card(self, subject: str) -> Card | None:
        """Return the public keys of an agent; None if it has never connected."""
        path = f"/v1/endpoints/{path_segment(validate_subject(subject))}/card"

        def query() -> Card:
            token = self._operator or self._http.log_in(self._identity)
            return self._http.get(path, Card, token=token)

        return await self._unless_missing(query)

    async def find_agents(self, skill: str | None, limit: int, after: str | None) -> AgentList:
        """Return agents that this one may see, with `skill` if given, by name."""

        def query() -> AgentList:
            token = self._operator or self._http.log_in(self._identity)
            found, begin = list[AgentInfo](), after
            for _ in range(PAGES_MAX):
                page = self._http.get(
                    "/v1/agents",
                    AgentList,
                    token=token,
                    skill=skill,
                    limit=limit - len(found),
                    after=begin,
                )
                found += page.agents
                begin = page.next
                if begin is None or len(found) >= limit:
                    break
            return AgentList(agents=found[:limit], next=begin)

        return await self._run(query)

    async def register(self, subject: str) -> EndpointInfo:
        """Create a mailbox for a subject. For the operator."""
        path = f"/v1/endpoints/{path_segment(validate_subject(subject))}"
        token = self._operator_token()
        return await self._run(lambda: self._http.put(path, b"", EndpointInfo, token=token))

    async def endpoints(self, pattern: str, limit: int, after: str | None) -> EndpointList:
        """Return endpoints under `pattern`, by name, starting after `after`. For the operator."""
        return await self._run(lambda: self._endpoints(pattern, limit, after))

    async def stats(self) -> RelayStats:
        """Return the statistics of the relay. For the operator."""
        token = self._operator_token()
        return await self._run(
            lambda: self._http.get("/v1/stats", RelayStats, token=token, inboxes=INBOXES_MAX)
        )

    def _endpoints(self, pattern: str, limit: int, after: str | None) -> EndpointList:
        token, found = self._operator_token(), list[EndpointInfo]()
        while True:
            page = self._http.get(
                "/v1/endpoints", EndpointList, token=token, limit=PAGE_SIZE, after=after
            )
            for one in page.endpoints:
                if not matches_pattern(one.subject, pattern):
                    continue
                if len(found) == limit:
                    return EndpointList(endpoints=found, next=found[-1].subject)
                found.append(one)
            after = page.next
            if after is None:
                return EndpointList(endpoints=found)

    def _operator_token(self) -> Token:
        assert self._operator is not None, "check is_operator first"
        return self._operator

    async def _unless_missing(self, query: Callable[[], T]) -> T | None:
        try:
            return await self._run(query)
        except RemoteError as problem:
            if problem.status == 404:
                return None
            raise

    async def _run(self, query: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, query)
