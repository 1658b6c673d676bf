"""Writes to a relay with Spark: each row is a message, published over HTTP.

Rule 1  Every message has an id before it is sent, so a retried task stores nothing twice: the
        relay returns the first result again. Without a column `message_id`, the id is made of
        job, task and row number.
Rule 2  All tasks send all their rows. Rejections are counted, and end the job after that, unless
        `rejected=skip`.

Standard library and PySpark only: executors need no part of Waypost to send.
"""

import http.client
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from pyspark import TaskContext
from pyspark.sql import Row
from pyspark.sql.datasource import DataSourceStreamWriter, DataSourceWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from waypost.pipeline.errors import RelayRejected

COLUMNS = {"subject", "payload", "reply_to", "message_id"}
_NEEDED = {"subject", "payload"}
_TIMEOUT_S = 60
_REQUEST_MAX_BYTES = 512 * 1024
_REQUEST_MAX_MESSAGES = 1000
_QUOTED_MAX_CHARS = 80


@dataclass(frozen=True)
class WriteOptions:
    """Options of writing: which relay, the sender's token, the source of ids, and rejections."""

    url: str
    token: str
    job: str
    chosen_ids: bool
    skip_rejected: bool
    with_reply_to: bool = False


@dataclass
class SendSummary(WriterCommitMessage):
    """The messages that one task sent, and how many were rejected, by reason."""

    messages: int = 0
    rejected: dict[str, int] = field(default_factory=dict)


def write_options(
    options: dict[str, str], schema: StructType, *, skip_rejected: bool
) -> WriteOptions:
    """Check options and columns. Raises `ValueError`."""
    names = set(schema.fieldNames())
    if not _NEEDED <= names <= COLUMNS:
        raise ValueError(
            "wrong columns: a relay takes subject and payload (JSON text), optionally reply_to and"
            f" message_id, not {', '.join(sorted(names))}"
        )
    url = options.get("url", "")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("no relay given: set option url, for example http://127.0.0.1:8080")
    return WriteOptions(
        url=url.rstrip("/"),
        token=options.get("token", ""),
        job=options.get("job", uuid.uuid4().hex),
        chosen_ids="message_id" in names,
        skip_rejected=skip_rejected,
        with_reply_to="reply_to" in names,
    )


class RelayWriter(DataSourceWriter):
    """Publishes the rows of a DataFrame."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Row]) -> SendSummary:
        """Publish the rows of one task."""
        return send(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Finish the job. Raises `RelayRejected` if messages were rejected."""
        raise_if_rejected(messages, self._options)


class RelayStreamWriter(DataSourceStreamWriter):
    """Publishes the rows of a stream, which must have ids: a batch may be repeated."""

    def __init__(self, options: WriteOptions) -> None:
        if not options.chosen_ids:
            raise ValueError(
                "no column message_id: a stream that writes to a relay needs one, because its last"
                " batch is repeated after a restart and duplicates are found by id"
            )
        self._options = options

    def write(self, iterator: Iterator[Row]) -> SendSummary:
        """Publish the rows of one task."""
        return send(iterator, self._options)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - named by Spark
    ) -> None:
        """Finish a batch. Raises `RelayRejected` if messages were rejected."""
        raise_if_rejected(messages, self._options)


def send(rows: Iterator[Row], options: WriteOptions) -> SendSummary:
    """Publish `rows` in as few requests as possible. Raises `RelayRejected` if a request fails."""
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    rejected: Counter[str] = Counter()
    count = size = 0
    bodies: list[bytes] = []
    connection = _Connection(options)
    try:
        for count, row in enumerate(rows, start=1):
            body = _message(row, options, f"{options.job}-{task}-{count - 1}")
            if bodies and (
                size + len(body) > _REQUEST_MAX_BYTES or len(bodies) == _REQUEST_MAX_MESSAGES
            ):
                rejected.update(connection.publish(bodies))
                bodies, size = [], 0
            bodies.append(body)
            size += len(body)
        if bodies:
            rejected.update(connection.publish(bodies))
    finally:
        connection.close()
    return SendSummary(count, dict(rejected))


def raise_if_rejected(messages: list[WriterCommitMessage | None], options: WriteOptions) -> None:
    """Raise `RelayRejected` if any task had rejections, unless options say to skip them."""
    sent = [one for one in messages if isinstance(one, SendSummary)]
    rejected: Counter[str] = Counter()
    for one in sent:
        rejected.update(one.rejected)
    if rejected and not options.skip_rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()))
        raise RelayRejected(
            f"the relay rejected {rejected.total()} of {sum(one.messages for one in sent)} messages"
            f" ({reasons}) and stored the rest; option rejected=skip ignores rejections"
        )


class _Connection:
    """One connection to a relay, reopened after the relay has closed it."""

    def __init__(self, options: WriteOptions) -> None:
        address = urlsplit(options.url)
        secure = address.scheme == "https"
        kind = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        self._http = kind(address.netloc, timeout=_TIMEOUT_S)
        self._path = f"{address.path}/v1/messages"
        self._headers = {"Content-Type": "application/json"}
        if options.token:
            self._headers["Authorization"] = f"Bearer {options.token}"

    def publish(self, bodies: list[bytes]) -> Counter[str]:
        """Publish messages; returns the number of rejections by reason."""
        content = b'{"messages":[' + b",".join(bodies) + b"]}"
        try:
            status, response = self._post(content)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self._http.close()  # closed while idle; ids make a retry safe
            status, response = self._post(content)
        if status != http.client.OK:
            problem = response.get("error", f"status {status}")
            raise RelayRejected(
                f"the relay rejected a request with {len(bodies)} messages: {problem}"
            )
        return Counter(
            rejection["reason"]
            for result in response["results"]
            for rejection in result["rejected"]
        )

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def _post(self, content: bytes) -> tuple[int, dict[str, Any]]:
        self._http.request("POST", self._path, content, self._headers)
        response = self._http.getresponse()
        text = response.read()
        try:
            body = json.loads(text)
        except ValueError:
            body = None
        return response.status, body if isinstance(body, dict) else {}


def _message(row: Row, options: WriteOptions, default_id: str) -> bytes:
    """Return a message as JSON, with the payload's JSON text unchanged."""
    chosen = row["message_id"] if options.chosen_ids else None
    header = {"subject": row["subject"], "message_id": chosen or default_id}
    if options.with_reply_to and row["reply_to"]:
        header["reply_to"] = row["reply_to"]
    payload = "null" if row["payload"] is None else row["payload"]
    try:
        json.loads(payload)
    except ValueError as problem:
        raise RelayRejected(
            f"payload is not valid JSON text ({problem}): {payload[:_QUOTED_MAX_CHARS]}"
        ) from None
    return f'{json.dumps(header)[:-1]},"payload":{payload}}}'.encode()
