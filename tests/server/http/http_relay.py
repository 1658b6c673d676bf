"""A relay served over HTTP on a real directory, without sockets and with a manual clock."""

from typing import Any

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from starlette.applications import Starlette

from waypost.client.identity import Identity
from waypost.server.context import ServerContext
from waypost.server.gate import Gate
from waypost.server.origins import Origins, parse_origin
from waypost.testing import ManualClock

ORIGIN = "relay.test:8080"


def behind_gate(app: Starlette) -> Gate:
    """Return `app` as served under the name of these tests."""
    return Gate(app, Origins([parse_origin(ORIGIN, 8080)]))


class HttpRelay:
    """Requests to the relay, and its inside for facts that no response shows."""

    def __init__(
        self,
        app: Starlette,
        context: ServerContext,
        clock: ManualClock,
        client: httpx.AsyncClient,
        operator: str,
    ) -> None:
        self.app = app
        self.context = context
        self.relay = context.relay
        self.clock = clock
        self.client = client
        self.operator = operator
        self._identities: dict[str, Identity] = {}

    async def token(self, subject: str) -> str:
        """Authenticate and return a new token."""
        identity = self._identities.setdefault(subject, Identity.new(subject))
        challenge = await self.call("POST", "/v1/auth/challenge")
        given = await self.call("POST", "/v1/auth/token", json=self.proof(identity, challenge))
        assert given.status_code == 200, given.text
        return str(given.json()["token"])

    async def tokens_of_one_key(self, *subjects: str) -> list[str]:
        """Authenticate under several names with one key; return their tokens."""
        signing, sealing = Ed25519PrivateKey.generate(), X25519PrivateKey.generate()
        for subject in subjects:
            self._identities[subject] = Identity(subject, signing, sealing)
        return [await self.token(subject) for subject in subjects]

    def proof(self, identity: Identity, challenge: httpx.Response) -> dict[str, Any]:
        """Return the proof of `identity` for a challenge."""
        proof = identity.prove(challenge.json()["nonce"], ORIGIN)
        return {
            "subject": proof.subject,
            "public_key": proof.public_key,
            "signature": proof.signature,
            "nonce": challenge.json()["nonce"],
            "sealing_key": proof.sealing_key,
            "sealing_signature": proof.sealing_signature,
        }

    async def call(
        self, method: str, path: str, *, token: str | None = None, **request: Any
    ) -> httpx.Response:
        """Send a request."""
        headers = dict(request.pop("headers", {}))
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        return await self.client.request(method, path, headers=headers, **request)

    async def publish(
        self, subject: str, payload: object = None, *, token: str | None = None, **fields: Any
    ) -> httpx.Response:
        """Publish one message."""
        body = {"subject": subject, "payload": payload, **fields}
        return await self.call("POST", "/v1/messages", token=token, json=body)

    async def read(self, subject: str, *, token: str, **query: Any) -> list[dict[str, Any]]:
        """Lease messages from an inbox."""
        read = await self.call("GET", f"/v1/inbox/{subject}", token=token, params=query)
        assert read.status_code == 200, read.text
        messages: list[dict[str, Any]] = read.json()["messages"]
        return messages

    async def ack(self, subject: str, ids: list[str], *, token: str) -> httpx.Response:
        """Acknowledge messages."""
        return await self.call("POST", f"/v1/inbox/{subject}/ack", token=token, json={"ids": ids})
