"""A relay in a process of its own for the dashboard, and requests of its operator."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from tests.harness.relay_process import RelayProcess

PROGRAM = Path(__file__).with_name("failing_handler_relay.py")


class DashboardRelay(RelayProcess):
    """A relay whose handlers always fail, and its operator; `restart` keeps the port."""

    ready = "http"
    environment: Mapping[str, str] = {}

    def __init__(self, data: Path) -> None:
        self.data = data
        self.lake = data / "lake"
        self._start(port=0)

    def arguments(self, port: int) -> list[str]:
        """Return the program and its arguments."""
        return [str(PROGRAM), str(self.data), str(port)]

    def _start(self, port: int) -> None:
        super().__init__(
            self.arguments(port),
            self.data.parent / "relay.log",
            ready=self.ready,
            environment=self.environment,
        )
        self.token = (self.data / "operator-token").read_text().strip()
        self.client = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}
        )

    def restart(self) -> None:
        self._start(int(self.url.rpartition(":")[2]))

    def exit_code(self) -> int:
        self.client.close()
        return super().exit_code()

    def ask(self, method: str, path: str, **request: Any) -> Any:
        answered = self.client.request(method, path, **request)
        assert answered.status_code == 200, answered.text
        return answered.json()

    def publish(self, subject: str, payload: object = "hello", **fields: Any) -> str:
        """Publish a message and return its id."""
        body = {"subject": subject, "payload": payload, **fields}
        return str(self.ask("POST", "/v1/messages", json=body)["message_id"])

    def publish_many(self, subjects: list[str]) -> None:
        messages = [{"subject": one, "payload": "hello"} for one in subjects]
        self.ask("POST", "/v1/messages", json={"messages": messages})

    def dead_letter(self, subject: str, message_id: str, payload: object = "dead") -> None:
        """Create a dead letter that can be redriven: its budget is used up, it has not expired."""
        body = {"subject": subject, "payload": payload, "message_id": message_id}
        spent = {"hop_count": 5, "max_hops": 5}
        answered = self.client.post("/v1/messages", json={**body, "budget": spent})
        assert answered.status_code == 422, answered.text

    def acknowledge(self, subject: str, limit: int = 100) -> int:
        """Read an inbox and acknowledge its messages."""
        read = self.ask("GET", f"/v1/inbox/{subject}", params={"limit": limit})
        ids = [one["id"] for one in read["messages"]]
        return int(self.ask("POST", f"/v1/inbox/{subject}/ack", json={"ids": ids})["count"])


class ServedRelay(DashboardRelay):
    """A relay of `waypost serve`, with a cache directory of its own for Spark."""

    ready = "Stop with Ctrl-C"

    def arguments(self, port: int) -> list[str]:
        """Return the command."""
        self.environment = {"XDG_CACHE_HOME": str(self.data.parent / "cache")}
        return ["-m", "waypost", "serve", "--data-dir", str(self.data), "--port", str(port)]
