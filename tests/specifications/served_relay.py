"""A relay on a port, and agents that speak its documented JSON over HTTP and WebSockets."""

import asyncio
import json
from pathlib import Path
from typing import Any, Literal, Self

import httpx
import msgspec
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as dial

from tests.harness.listening_relay import ListeningRelay, served_settings
from waypost.client import Identity
from waypost.testing import ManualClock

PATIENCE_S = 60.0
Operation = dict[str, Any]


class ServedRelay:
    """A relay on a port with a manual clock; keys of agents are kept over restarts."""

    def __init__(self, data_dir: Path, clock: ManualClock) -> None:
        self.data_dir = data_dir
        self._clock = clock
        self._running: ListeningRelay | None = None
        self._identities: dict[str, Identity] = {}
        self._agents: list[PlainAgent] = []
        self._client = httpx.AsyncClient(trust_env=False, verify=False)

    @property
    def url(self) -> str:
        assert self._running is not None
        return self._running.url

    async def start(self, *, options: dict[str, Any] | None = None, **fields: Any) -> Self:
        """Serve the directory; `options` are those of serving, keywords fields of `Settings`."""
        await self.stop()
        self._running = ListeningRelay(self.data_dir, served_settings(**fields))
        self._running.clock = self._clock
        self._running.options = msgspec.structs.replace(self._running.options, **(options or {}))
        await self._running.start()
        return self

    async def close(self) -> None:
        await self.stop()
        await self._client.aclose()

    async def stop(self) -> None:
        for agent in self._agents:
            await agent.disconnect()
        self._agents.clear()
        if self._running is not None:
            await self._running.stop()
            self._running = None

    def identity(self, subject: str) -> Identity:
        return self._identities.setdefault(subject, Identity.new(subject))

    async def connect(
        self, subject: str = "agent.a", *, receive: Literal["push", "pull"] = "push"
    ) -> "PlainAgent":
        """Connect and authenticate an agent."""
        address = self.url.removeprefix("http://")
        socket = await dial(f"ws://{address}/v1/connect", compression=None, proxy=None)
        agent = PlainAgent(socket)
        self._agents.append(agent)
        challenge = await agent.expect("challenge")
        proof = self.identity(subject).prove(challenge["nonce"], address, receive=receive)
        await agent.write(json.loads(msgspec.json.encode(proof)))
        await agent.expect("welcome")
        return agent

    async def token(self, subject: str) -> str:
        """Authenticate over HTTP and return a token."""
        nonce = (await self.call("POST", "/v1/auth/challenge")).json()["nonce"]
        proof = self.identity(subject).prove(nonce, self.url.removeprefix("http://"))
        fields = json.loads(msgspec.json.encode(proof))
        body = {name: value for name, value in fields.items() if name not in ("op", "receive")}
        given = await self.call("POST", "/v1/auth/token", json={**body, "nonce": nonce})
        return str(given.json()["token"])

    @property
    def operator(self) -> str:
        """The operator's token."""
        return (self.data_dir / "operator-token").read_text().strip()

    async def call(
        self, method: str, path: str, *, token: str = "", **request: Any
    ) -> httpx.Response:
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        return await self._client.request(method, self.url + path, headers=headers, **request)

    async def publish(
        self, subject: str, payload: object = None, *, token: str = "", **fields: Any
    ) -> httpx.Response:
        """Publish one message over HTTP."""
        body = {"subject": subject, "payload": payload, **fields}
        return await self.call("POST", "/v1/messages", token=token, json=body)

    async def store(self, count: int, *, to: str = "agent.a", first: int = 0) -> None:
        """Publish `count` messages with the payloads `first`, `first + 1`, … in one request."""
        messages = [{"subject": to, "payload": first + number} for number in range(count)]
        answer = await self.call("POST", "/v1/messages", json={"messages": messages})
        assert {one["delivered_to"] for one in answer.json()["results"]} == {1}, answer.text

    async def read(self, subject: str, *, token: str, **query: Any) -> list[Any]:
        """Lease messages over HTTP, and return them."""
        answer = await self.call("GET", f"/v1/inbox/{subject}", token=token, params=query)
        messages: list[Any] = answer.json()["messages"]
        return messages

    async def ack(self, subject: str, ids: list[str], *, token: str) -> httpx.Response:
        return await self.call("POST", f"/v1/inbox/{subject}/ack", token=token, json={"ids": ids})


class PlainAgent:
    """The agent's end of a WebSocket: operations are JSON objects, as documented."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._read: list[Operation] = []
        self._refs = 0

    async def write(self, *operations: Operation) -> None:
        await self._socket.send(json.dumps(operations[0] if len(operations) == 1 else operations))

    async def next(self) -> Operation:
        async with asyncio.timeout(PATIENCE_S):
            while not self._read:
                frame = json.loads(await self._socket.recv())
                self._read = frame if isinstance(frame, list) else [frame]
        return self._read.pop(0)

    async def expect(self, op: str) -> Operation:
        """Return the next operation, which must be `op`."""
        found = await self.next()
        assert found["op"] == op, found
        return found

    async def until(self, op: str) -> list[Operation]:
        """Return the operations up to the next `op`, which is the last of them."""
        found = [await self.next()]
        while found[-1]["op"] != op:
            found.append(await self.next())
        return found

    async def send(self, subject: str, payload: object = None, **more: Any) -> list[Operation]:
        """Send a message; return the operations up to its answer, which is the last of them."""
        self._refs += 1
        ref = self._refs
        message = {"op": "send", "ref": ref, "subject": subject, "payload": payload, **more}
        await self.write(message)
        found = [await self.next()]
        while found[-1].get("ref") != ref or found[-1]["op"] not in ("sent", "error"):
            found.append(await self.next())
        return found

    async def read_until_idle(self) -> list[Operation]:
        """Return everything that the relay sends until it has dealt with all that came before.

        Answers arrive in order, and after what was stored before them was handed out.
        """
        found: list[Operation] = []
        for _ in range(2):
            found += (await self.send("agent.nobody-reads-this"))[:-1]
        return [one for one in found if one["op"] != "queue_full"]

    async def ack(self, messages: list[Operation]) -> None:
        ids = [one["envelope"]["id"] for one in messages if one["op"] == "message"]
        await self.write({"op": "ack", "ids": ids})

    async def disconnect(self) -> None:
        """Close, and read meanwhile: the answer to the close comes after unread frames."""
        async with asyncio.timeout(PATIENCE_S):
            await self._socket.close()


def payloads(operations: list[Operation]) -> list[Any]:
    """Return the payloads of the messages among `operations`."""
    return [one["envelope"]["payload"] for one in operations if one["op"] == "message"]


def kinds(operations: list[Operation]) -> list[str]:
    return [one["op"] for one in operations]
