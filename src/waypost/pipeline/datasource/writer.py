"""Writing to a relay with Spark: each row is a message, published over HTTP.

Rule 1  Every message has an id chosen before it is sent, so that a task that runs again sends
        nothing twice: the relay gives the first result again. Without a column `message_id`, ids
        are made of the job's, the task's and the row's number.
Rule 2  All tasks send what they have. What the relay refused is counted, and then ends the job,
        unless `refused=skip`.

Standard library only: executors need nothing of Waypost to send.
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
_SHOWN_MAX_CHARS = 80


@dataclass(frozen=True)
class WriteOptions:
    """Where messages go, and as whom."""

    url: str
    token: str
    job: str
    chosen_ids: bool
    skip_rejected: bool
    with_reply_to: bool = False


@dataclass
class Sent(WriterCommitMessage):
    """What one task sent, and how many of it were refused, by reason."""

    messages: int = 0
    rejected: dict[str, int] = field(default_factory=dict)


def write_options(
    options: dict[str, str], schema: StructType, *, skip_rejected: bool
) -> WriteOptions:
    """Checks options and columns; raises `ValueError` saying what is wrong."""
    names = set(schema.fieldNames())
    if not _NEEDED <= names <= COLUMNS:
        raise ValueError(
            "a relay takes the columns subject and payload (JSON text), and if you like reply_to"
            f" and message_id; these are {', '.join(sorted(names))}"
        )
    url = options.get("url", "")
    if urlsplit(url).scheme not in ("http", "https"):
        raise ValueError("which relay? option url is like http://127.0.0.1:8080")
    return WriteOptions(
        url=url.rstrip("/"),
        token=options.get("token", ""),
        job=options.get("job", uuid.uuid4().hex),
        chosen_ids="message_id" in names,
        skip_rejected=skip_rejected,
        with_reply_to="reply_to" in names,
    )


class RelayWriter(DataSourceWriter):
    """A DataFrame's rows as messages."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Row]) -> Sent:
        """Send the rows of one task."""
        return send(iterator, self._options)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Every task has sent; raises `RelayRejected` if not all was taken."""
        complain(messages, self._options)


class RelayStreamWriter(DataSourceStreamWriter):
    """A stream's rows as messages. Ids must be given: a batch may come twice."""

    def __init__(self, options: WriteOptions) -> None:
        if not options.chosen_ids:
            raise ValueError(
                "a stream that writes to a relay needs a column message_id: after a restart its"
                " last batch comes again, and only ids tell that it was sent"
            )
        self._options = options

    def write(self, iterator: Iterator[Row]) -> Sent:
        """Send the rows of one task."""
        return send(iterator, self._options)

    def commit(
        self,
        messages: list[WriterCommitMessage | None],
        batchId: int,  # noqa: N803 - named by Spark
    ) -> None:
        """A batch was sent; raises `RelayRejected` if not all was taken."""
        complain(messages, self._options)


def send(rows: Iterator[Row], options: WriteOptions) -> Sent:
    """Publish `rows` in as few requests as fit; raises `RelayRejected` if one fails as a whole."""
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    rejected: Counter[str] = Counter()
    count = waiting = 0
    bodies: list[bytes] = []
    connection = _Connection(options)
    try:
        for count, row in enumerate(rows, start=1):
            body = _message(row, options, f"{options.job}-{task}-{count - 1}")
            if bodies and (
                waiting + len(body) > _REQUEST_MAX_BYTES or len(bodies) == _REQUEST_MAX_MESSAGES
            ):
                rejected.update(connection.publish(bodies))
                bodies, waiting = [], 0
            bodies.append(body)
            waiting += len(body)
        if bodies:
            rejected.update(connection.publish(bodies))
    finally:
        connection.close()
    return Sent(count, dict(rejected))


def complain(messages: list[WriterCommitMessage | None], options: WriteOptions) -> None:
    """Raises `RelayRejected` with all that was refused, unless that is to be passed over."""
    sent = [one for one in messages if isinstance(one, Sent)]
    rejected: Counter[str] = Counter()
    for one in sent:
        rejected.update(one.rejected)
    if rejected and not options.skip_rejected:
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(rejected.items()))
        raise RelayRejected(
            f"the relay refused {rejected.total()} of {sum(one.messages for one in sent)} messages"
            f" ({reasons}); the others are there. Option refused=skip passes over refusals"
        )


class _Connection:
    """One connection to a relay, made again when the relay has closed it."""

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
        """Send messages; returns how many were refused, by reason."""
        content = b'{"messages":[' + b",".join(bodies) + b"]}"
        try:
            status, answer = self._ask(content)
        except (http.client.RemoteDisconnected, ConnectionResetError, BrokenPipeError):
            self._http.close()  # it was idle for too long; the ids make a second try harmless
            status, answer = self._ask(content)
        if status != http.client.OK:
            problem = answer.get("error", f"status {status}")
            raise RelayRejected(f"the relay refused a request of {len(bodies)} messages: {problem}")
        return Counter(
            rejection["reason"] for result in answer["results"] for rejection in result["rejected"]
        )

    def close(self) -> None:
        """Hang up."""
        self._http.close()

    def _ask(self, content: bytes) -> tuple[int, dict[str, Any]]:
        self._http.request("POST", self._path, content, self._headers)
        response = self._http.getresponse()
        text = response.read()
        try:
            answer = json.loads(text)
        except ValueError:
            answer = None
        return response.status, answer if isinstance(answer, dict) else {}


def _message(row: Row, options: WriteOptions, made_id: str) -> bytes:
    """One message as JSON; the payload is JSON already, and stays as it is."""
    chosen = row["message_id"] if options.chosen_ids else None
    header = {"subject": row["subject"], "message_id": chosen or made_id}
    if options.with_reply_to and row["reply_to"]:
        header["reply_to"] = row["reply_to"]
    payload = "null" if row["payload"] is None else row["payload"]
    try:
        json.loads(payload)
    except ValueError as problem:
        raise RelayRejected(
            f"a payload is not JSON text ({problem}): {payload[:_SHOWN_MAX_CHARS]}"
        ) from None
    return f'{json.dumps(header)[:-1]},"payload":{payload}}}'.encode()
