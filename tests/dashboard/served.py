"""A relay in a process of its own, and the traffic that tests make."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx

PROCESS = Path(__file__).with_name("relay_process.py")
ENDS_WITHIN_S = 20


class ServedRelay:
    """Runs until `end`; `again` starts it anew at the same place."""

    def __init__(self, data: Path) -> None:
        self.data = data
        self.lake = data / "lake"
        self.url = ""
        self._start(port=0)

    def _start(self, port: int) -> None:
        self._log = (self.data.parent / "relay.log").open("ab")
        self.process = subprocess.Popen(
            [sys.executable, str(PROCESS), str(self.data), str(port)],
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().strip()
        assert self.url, (self.data.parent / "relay.log").read_text()
        self.token = (self.data / "operator-token").read_text().strip()
        self.client = httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {self.token}"}
        )

    def again(self) -> None:
        self._start(int(self.url.rpartition(":")[2]))

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Its exit code."""
        self.client.close()
        self.process.send_signal(how)
        try:
            return self.process.wait(ENDS_WITHIN_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self._log.close()

    def ask(self, method: str, path: str, **request: Any) -> Any:
        answered = self.client.request(method, path, **request)
        assert answered.status_code == 200, answered.text
        return answered.json()

    def publish(self, subject: str, payload: object = "hello", **fields: Any) -> str:
        """The id of a message that was stored."""
        body = {"subject": subject, "payload": payload, **fields}
        return str(self.ask("POST", "/v1/messages", json=body)["message_id"])

    def publish_many(self, subjects: list[str]) -> None:
        messages = [{"subject": one, "payload": "hello"} for one in subjects]
        self.ask("POST", "/v1/messages", json={"messages": messages})

    def bury(self, subject: str, message_id: str, payload: object = "dead") -> None:
        """Make a dead letter that can be put back: its budget is spent, its time is not over."""
        body = {"subject": subject, "payload": payload, "message_id": message_id}
        spent = {"hop_count": 5, "max_hops": 5}
        answered = self.client.post("/v1/messages", json={**body, "budget": spent})
        assert answered.status_code == 422, answered.text

    def acknowledge(self, subject: str, limit: int = 100) -> int:
        """Read an inbox and acknowledge what was in it."""
        read = self.ask("GET", f"/v1/inbox/{subject}", params={"limit": limit})
        ids = [one["id"] for one in read["messages"]]
        return int(self.ask("POST", f"/v1/inbox/{subject}/ack", json={"ids": ids})["count"])
