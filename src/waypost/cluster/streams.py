"""The streams of a cluster on NATS JetStream: created once, and checked before a node uses one.

The promises of a cluster rest on what is checked here: confirmed means on the disks of a majority,
nothing is deleted behind a node's back, and nodes of two clusters never write one stream.

Rule 1  A stream belongs to one cluster; its metadata has the name.
Rule 2  Every difference is reported at once, with what to do. Nothing is changed or repaired.
"""

import asyncio
import http.client
import json
import logging
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import nats.errors
import nats.js.errors
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, StorageType, StreamConfig

from waypost.cluster.address import without_user
from waypost.cluster.jetstream import TIMEOUT_S, JetStreamLog
from waypost.policy.bounds import (
    cluster_name_max_chars,
    monitoring_max_bytes,
    partitions_max,
    replicas_max,
)
from waypost.policy.errors import InvalidInput
from waypost.relay.errors import LogUnavailable, LogUnusable

log = logging.getLogger("waypost.cluster")

SERVER_MIN = (2, 15, 1)
"""From this version on, a leader that has lost its term cannot append any more."""

REPLICAS = 3
CLUSTER_KEY = "waypost-cluster"
_CONNECT_S = 5.0
_PING_S, _PINGS_MAX = 3.0, 2
"""A server that vanished without closing its connections is given up after the pings that it leaves
unanswered, some ten seconds. NATS's client would need four minutes and more, and TCP a quarter of
an hour."""
_FAILURES = (nats.errors.Error, OSError, TimeoutError)


class NatsConnection(Client):
    """A connection to the servers.

    Rule 1  An address with `tls` is never spoken to in the clear. NATS's own client would, if the
            server says that it has no TLS, which anyone on the way can say.
    Rule 2  A request fails as soon as the connection is lost: its answer cannot arrive any more.
            It would wait for its timeout otherwise, and a publish of an agent with it.
    Rule 3  Nothing waits for a server that does not read any more: a connection that is given up
            is cut off, with what was not sent.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def request(
        self,
        subject: str,
        payload: bytes = b"",
        timeout: float = 0.5,
        old_style: bool = False,
        headers: dict[str, Any] | None = None,
    ) -> Msg:
        """Return the answer. Raises `nats.errors.Error`."""
        asking = asyncio.ensure_future(
            super().request(subject, payload, timeout, old_style, headers)
        )
        try:
            await asyncio.wait((asking, self._lost), return_when=asyncio.FIRST_COMPLETED)
            if asking.done():
                return asking.result()
            raise nats.errors.ConnectionReconnectingError
        finally:
            asking.cancel()

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """Look at what the server says of itself; nothing, and no password, was sent to it yet."""
        server, transport = self._current_server, self._transport
        assert server is not None
        assert transport is not None
        if initial_connection and server.uri.scheme == "tls" and not info.get("tls_required"):
            transport.close()  # type: ignore[no-untyped-call]
            raise nats.errors.Error("the server does not require TLS, and the address does")
        await super()._process_info(info, initial_connection)

    async def _attempt_reconnect(self) -> None:
        """Connect again; closing the old connection would wait until all was sent."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()
        await super()._attempt_reconnect()

    async def note_loss(self) -> None:
        """Let the requests that are waiting fail: the connection they were sent on is lost."""
        self._lost.set_result(None)
        self._lost = asyncio.get_running_loop().create_future()


def stream_name(cluster: str, partition: int) -> str:
    """Return the name of a partition's stream; raise `InvalidInput` if it cannot have one."""
    known = cluster.replace("-", "").isalnum() and cluster.isascii()
    if not known or len(cluster) > cluster_name_max_chars:
        raise InvalidInput(
            f"a cluster's name has up to {cluster_name_max_chars} letters, digits and hyphens, not"
            f" {cluster!r}"
        )
    if not 0 <= partition < partitions_max:
        raise InvalidInput(f"partitions are 0 to {partitions_max - 1}, not {partition}")
    return f"waypost-{cluster}-{partition}"


async def connect(servers: Sequence[str]) -> Client:
    """Connect to one of the servers, after checking the version of each that can be reached.

    Raise `LogUnavailable` if there is none, `LogUnusable` if one is too old.
    """
    why = "none was given"
    reached = False
    for server in servers:
        try:
            client = await _connect([server], reconnect=False)
        except _FAILURES as problem:
            why = f"{type(problem).__name__}: {problem}"
            log.warning("cluster: %s cannot be reached: %s", without_user(server), problem)
            continue
        reached = True
        try:
            _check_version(client, server)
        finally:
            await disconnect(client)
    try:
        if reached:
            async with asyncio.timeout(_CONNECT_S):
                return await _connect(servers, reconnect=True)
    except _FAILURES as problem:
        why = f"{type(problem).__name__}: {problem}"
    raise LogUnavailable(
        f"no NATS server can be reached at {', '.join(map(without_user, servers))} ({why}): check"
        " the addresses, and that the servers are running"
    )


@contextmanager
def answered() -> Iterator[None]:
    """Raise `LogUnavailable` for what the NATS servers left unanswered in the block."""
    try:
        yield
    except nats.errors.Error as problem:
        raise LogUnavailable(
            f"the NATS servers did not answer ({problem}): check that a majority of them is running"
        ) from None


async def disconnect(client: Client) -> None:
    """Close a connection, also one that is broken."""
    try:
        await client.close()
    except _FAILURES:
        pass


async def create_stream(
    client: Client, cluster: str, partition: int, *, replicas: int = REPLICAS, max_bytes: int = -1
) -> None:
    """Create the stream of a partition. Raise `LogUnusable` if there is one, or it cannot be."""
    if not 1 <= replicas <= replicas_max:
        raise InvalidInput(f"a stream has 1 to {replicas_max} replicas, not {replicas}")
    config = _config(cluster, partition, replicas, max_bytes)
    try:
        await client.jetstream().add_stream(config)
    except nats.js.errors.APIError as problem:
        raise LogUnusable(
            f"the stream {config.name} cannot be created: {problem.description};"
            f" {replicas} replicas need as many servers with JetStream"
        ) from None
    except nats.errors.Error as problem:
        raise LogUnavailable(f"the stream {config.name} was not created: {problem}") from None


async def open_log(
    client: Client,
    cluster: str,
    partition: int,
    *,
    replicas: int = REPLICAS,
    timeout_s: float = TIMEOUT_S,
) -> JetStreamLog:
    """Return the log of a partition, once its stream is as it must be.

    Raise `LogUnusable` with everything that is not. Fewer than three replicas are allowed if the
    caller asks for them, with a warning.
    """
    name = stream_name(cluster, partition)
    try:
        info = await client.jetstream().stream_info(name)
    except nats.js.errors.NotFoundError:
        raise LogUnusable(
            f"there is no stream {name}: check the name of the cluster; if the stream was deleted,"
            " 'waypost cluster repair --refill' fills it again from the node with the longest"
            " journal"
        ) from None
    except (nats.js.errors.Error, nats.errors.Error) as problem:
        raise LogUnavailable(f"the stream {name} did not answer: {problem}") from None
    wanted = _config(cluster, partition, replicas, -1)
    wrong = [*_of_another(info.config, cluster), *_differences(info.config, wanted)]
    if wrong:
        raise LogUnusable(f"the stream {name} cannot be used: {'; '.join(wrong)}")
    if (info.config.num_replicas or 1) < REPLICAS:
        log.warning(
            "cluster: %s has %d replicas: losing one server stops it, and losing its disk loses"
            " what only the nodes' own journals have then",
            name,
            info.config.num_replicas or 1,
        )
    return JetStreamLog(client, name, f"waypost.{cluster}.{partition}", timeout_s=timeout_s)


async def check_sync(monitoring_url: str) -> None:
    """Check a server's `sync_interval` at its monitoring address: clients cannot see it.

    Raise `LogUnusable` if it confirms before it syncs, `LogUnavailable` if it does not answer.
    """
    try:
        shown = await asyncio.to_thread(_read_varz, monitoring_url)
    except (OSError, ValueError, http.client.HTTPException) as problem:
        raise LogUnavailable(
            f"{monitoring_url} does not show a server's settings ({problem}): it must be the"
            " monitoring address of nats-server (http_port)"
        ) from None
    if not shown.get("jetstream", {}).get("config", {}).get("sync_always"):
        raise LogUnusable(
            f"the NATS server at {monitoring_url} confirms messages before they are on disk: set"
            " 'sync_interval: always' in its jetstream block, and restart it"
        )


def _read_varz(monitoring_url: str) -> dict[str, dict[str, dict[str, object]]]:
    if not monitoring_url.startswith(("http://", "https://")):
        raise ValueError("not an http address")
    with urllib.request.urlopen(f"{monitoring_url.rstrip('/')}/varz", timeout=_CONNECT_S) as answer:
        shown = json.loads(answer.read(monitoring_max_bytes))
    if not isinstance(shown, dict):
        raise ValueError("not a JSON object")
    return shown


async def _connect(servers: Sequence[str], *, reconnect: bool) -> Client:
    async def note(problem: Exception) -> None:
        log.warning("cluster: NATS: %s", problem)

    logging.getLogger("asyncio").addFilter(_is_no_end_of_tls)
    client = NatsConnection()
    options: dict[str, Any] = {  # floats, which its annotations do not allow
        "reconnect_time_wait": 0.2,
        "connect_timeout": _CONNECT_S,
        "ping_interval": _PING_S,
    }
    await client.connect(
        list(servers),
        error_cb=note,
        disconnected_cb=client.note_loss,
        allow_reconnect=reconnect,
        max_reconnect_attempts=-1 if reconnect else 1,
        max_outstanding_pings=_PINGS_MAX,
        flush_timeout=_CONNECT_S,
        name="waypost",
        **options,
    )
    return client


def _is_no_end_of_tls(record: logging.LogRecord) -> bool:
    """Leave out what Python says whenever NATS's client ends a connection with TLS."""
    return record.msg != "returning true from eof_received() has no effect when using ssl"


def _check_version(client: Client, server: str) -> None:
    found = client.connected_server_version
    version = (found.major, found.minor, found.patch)
    if version < SERVER_MIN:
        raise LogUnusable(
            f"the NATS server at {without_user(server)} is version"
            f" {'.'.join(map(str, version))}, and must be {'.'.join(map(str, SERVER_MIN))} or"
            " newer: an older one may confirm messages and lose them when its leader changes"
        )


def _config(cluster: str, partition: int, replicas: int, max_bytes: int) -> StreamConfig:
    subject = f"waypost.{cluster}.{partition}"
    return StreamConfig(
        name=stream_name(cluster, partition),
        description="The replicated journal of a Waypost partition",
        subjects=[f"{subject}.batch", f"{subject}.piece"],
        storage=StorageType.FILE,
        discard=DiscardPolicy.NEW,
        num_replicas=replicas,
        max_bytes=max_bytes,
        deny_delete=True,
        deny_purge=True,
        allow_direct=False,
        metadata={CLUSTER_KEY: cluster},
    )


def _of_another(found: StreamConfig, cluster: str) -> Iterator[str]:
    name = (found.metadata or {}).get(CLUSTER_KEY, "")
    if name != cluster:
        owner = f"to the cluster {name!r}" if name else "to no cluster of Waypost"
        yield f"it belongs {owner}, not to {cluster!r}: check the name of the cluster"


def _differences(found: StreamConfig, wanted: StreamConfig) -> Iterator[str]:
    """Yield what keeps a stream from being used, one text each."""
    if found.storage != StorageType.FILE:
        yield "it is in memory, and must have file storage"
    if not found.deny_delete or not found.deny_purge:
        yield "its messages can be deleted: it needs deny_delete and deny_purge"
    if found.discard != DiscardPolicy.NEW:
        yield "it discards old messages when it is full: it needs 'discard: new'"
    if found.max_age or (found.max_msgs or -1) > 0:
        yield "it discards messages by age or number: it must have no max_age and no max_msgs"
    if found.sources or found.mirror or found.no_ack or found.sealed:
        yield "it is a mirror, has sources, confirms nothing, or is sealed"
    if getattr(found.persist_mode, "value", found.persist_mode) == "async":
        yield "it confirms messages before they are on disk (persist_mode: async)"
    if sorted(found.subjects or ()) != sorted(wanted.subjects or ()):
        yield f"its subjects are {found.subjects}, and must be {wanted.subjects}"
    if (found.num_replicas or 1) < (wanted.num_replicas or 1):
        yield (
            f"it has {found.num_replicas or 1} replicas, and should have {wanted.num_replicas}:"
            " fewer do not survive the loss of a server"
        )
