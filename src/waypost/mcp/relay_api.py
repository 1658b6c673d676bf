"""What is asked over HTTP, because a connection has no words for it: stories, endpoints, numbers.

An agent may ask for the stories of its own messages and whether somebody has been here. The rest
is the operator's, and needs the operator's token.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import msgspec

from waypost.client.http import HttpClient, RemoteError, Role, Token, path_segment
from waypost.client.identity import Identity
from waypost.policy.subjects import matches_pattern, validate_subject
from waypost.wire.http_bodies import EndpointInfo, EndpointList, MessageHistoryResponse, RelayStats
from waypost.wire.identifiers import validate_message_id
from waypost.wire.sealing import Card

T = TypeVar("T")

PAGE = 1000
THREADS = 4
INBOXES_MAX = 1000


class Page(msgspec.Struct):
    """Some endpoints; `next` is what to ask for more with."""

    endpoints: list[EndpointInfo]
    next: str | None


class Routes:
    """The HTTP interface of one relay, as this agent or as the operator. Raises `RemoteError`."""

    def __init__(self, url: str, identity: Identity, operator_token: str | None) -> None:
        self._api = HttpClient(url)
        self.url = self._api.url
        self._identity = identity
        self._threads = ThreadPoolExecutor(THREADS, "waypost-mcp-http")
        self._operator = None if operator_token is None else Token(Role.OPERATOR, operator_token)

    @property
    def is_operator(self) -> bool:
        """Whether there is an operator's token."""
        return self._operator is not None

    async def log_in(self) -> None:
        """See whether the relay lets this agent in."""
        await self._run(lambda: self._api.log_in(self._identity))

    async def close(self) -> None:
        """Let go of the connections, once what is under way has ended."""
        await asyncio.to_thread(self._threads.shutdown, cancel_futures=True)
        self._api.close()

    async def story(self, message_id: str) -> MessageHistoryResponse | None:
        """What happened to a message, as far as it is ours to know; None if that is nothing."""
        validate_message_id(message_id)
        path = f"/v1/messages/{path_segment(message_id)}"

        def ask() -> MessageHistoryResponse:
            token = self._operator or self._api.log_in(self._identity)
            return self._api.get(path, MessageHistoryResponse, token=token)

        return await self._unless_missing(ask)

    async def card(self, subject: str) -> Card | None:
        """The keys of an agent; None if it has never been here."""
        path = f"/v1/endpoints/{path_segment(validate_subject(subject))}/card"

        def ask() -> Card:
            token = self._operator or self._api.log_in(self._identity)
            return self._api.get(path, Card, token=token)

        return await self._unless_missing(ask)

    async def register(self, subject: str) -> EndpointInfo:
        """Give a subject a mailbox. For the operator."""
        path = f"/v1/endpoints/{path_segment(validate_subject(subject))}"
        token = self._as_operator()
        return await self._run(lambda: self._api.put(path, b"", EndpointInfo, token=token))

    async def endpoints(self, pattern: str, limit: int, after: str | None) -> Page:
        """Endpoints under `pattern`, by name, behind `after`. For the operator."""
        return await self._run(lambda: self._endpoints(pattern, limit, after))

    async def stats(self) -> RelayStats:
        """Return the statistics of the relay. For the operator."""
        token = self._as_operator()
        return await self._run(
            lambda: self._api.get("/v1/stats", RelayStats, token=token, inboxes=INBOXES_MAX)
        )

    def _endpoints(self, pattern: str, limit: int, after: str | None) -> Page:
        token, found = self._as_operator(), list[EndpointInfo]()
        while True:
            page = self._api.get(
                "/v1/endpoints", EndpointList, token=token, limit=PAGE, after=after
            )
            for one in page.endpoints:
                if not matches_pattern(one.subject, pattern):
                    continue
                if len(found) == limit:
                    return Page(found, found[-1].subject)
                found.append(one)
            after = page.next
            if after is None:
                return Page(found, None)

    def _as_operator(self) -> Token:
        assert self._operator is not None, "ask is_operator first"
        return self._operator

    async def _unless_missing(self, ask: Callable[[], T]) -> T | None:
        try:
            return await self._run(ask)
        except RemoteError as problem:
            if problem.status == 404:
                return None
            raise

    async def _run(self, ask: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._threads, ask)
