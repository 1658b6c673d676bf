"""Requests to the HTTP interface of a relay, one at a time."""

import ssl
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from waypost.cli.remote.failures import RemoteError, Speaker, rejection, unreachable
from waypost.client.address import CONNECT_PATH, parse_address
from waypost.wire.http_bodies import ChallengeGiven, TokenAsked, TokenGiven

if TYPE_CHECKING:
    from waypost.client.identity import Identity

T = TypeVar("T")

_TIMEOUTS_S = httpx.Timeout(connect=10, read=60, write=60, pool=10)


class Token(msgspec.Struct, frozen=True):
    """By whom a request is made; without `text`, by nobody in particular."""

    speaker: Speaker
    text: str = ""


NOBODY = Token(Speaker.NOBODY)


class Api:
    """The HTTP interface at `url`. Raises `InvalidInput` if that is no address of a relay."""

    def __init__(self, url: str) -> None:
        address = parse_address(url)
        self.url = f"http{address.uri.removeprefix('ws').removesuffix(CONNECT_PATH)}"
        self._origin = address.origin
        # Proxies are left out: the name the relay is asked by is part of every proof.
        self._client = httpx.Client(
            timeout=_TIMEOUTS_S, verify=trust(self.url) or False, trust_env=False
        )

    def close(self) -> None:
        """Let go of the connection."""
        self._client.close()

    def log_in(self, identity: "Identity") -> Token:
        """A token for an agent that proves who it is."""
        nonce = self.post("/v1/auth/challenge", None, ChallengeGiven).nonce
        proof = identity.prove(nonce, self._origin)
        asked = TokenAsked(
            subject=proof.subject,
            public_key=proof.public_key,
            signature=proof.signature,
            nonce=nonce,
            sealing_key=proof.sealing_key,
            sealing_signature=proof.sealing_signature,
        )
        claim = Token(Speaker.AGENT)
        return Token(
            Speaker.AGENT, self.post("/v1/auth/token", asked, TokenGiven, token=claim).token
        )

    def get(self, path: str, answer: type[T], *, token: Token = NOBODY, **query: Any) -> T:
        """What is at `path`. Raises `RemoteError` or `InvalidInput`."""
        wanted = {name: _text(value) for name, value in query.items() if value is not None}
        return self._ask("GET", path, answer, token, params=wanted)

    def post(self, path: str, body: object, answer: type[T], *, token: Token = NOBODY) -> T:
        """Have something done. Raises as `get` does."""
        return self._ask("POST", path, answer, token, content=_encode(body))

    def put(
        self, path: str, body: bytes, answer: type[T], *, token: Token = NOBODY, **query: Any
    ) -> T:
        """Put something there. Raises as `get` does."""
        wanted = {name: _text(value) for name, value in query.items()}
        return self._ask("PUT", path, answer, token, content=body, params=wanted)

    def delete(self, path: str, answer: type[T], *, token: Token = NOBODY, **query: Any) -> T:
        """Take something away. Raises as `get` does."""
        return self._ask("DELETE", path, answer, token, params=query)

    def _ask(self, method: str, path: str, answer: type[T], token: Token, **more: Any) -> T:
        headers = {"Content-Type": "application/json"} if more.get("content") else {}
        if token.text:
            headers["Authorization"] = f"Bearer {token.text}"
        try:
            response = self._client.request(method, self.url + path, headers=headers, **more)
        except httpx.HTTPError as problem:
            raise unreachable(self.url, problem) from None
        if response.status_code != 200:
            raise rejection(self.url, response, token.speaker)
        try:
            return msgspec.json.decode(response.content, type=answer)
        except msgspec.DecodeError as problem:
            raise RemoteError(
                f"what answers at {self.url} does not speak as this version does: {problem}"
            ) from None


def in_path(name: str) -> str:
    """A subject or an id as a part of a path."""
    return quote(name, safe="")


def _encode(body: object) -> bytes:
    return b"" if body is None else msgspec.json.encode(body)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def trust(url: str) -> ssl.SSLContext | None:
    """The authorities that this machine trusts; SSL_CERT_FILE names others. None without TLS."""
    return ssl.create_default_context() if url.startswith("https:") else None
