"""Serving a node: what it answers for itself, and how it listens and shuts down.

For itself, a node shows its health, the state of the cluster, and a page with both.

The state names nodes and partitions only, never agents; it is for the operator all the same.
"""

import asyncio
import logging
from collections.abc import Callable
from importlib import resources
from pathlib import Path

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from waypost.cluster.address import ClusterOptions, parse_cluster
from waypost.cluster.advertising import NODE_PATH, keep_checking
from waypost.cluster.front import Front
from waypost.cluster.metrics import NodeFigures, PartitionFigures, render_metrics
from waypost.cluster.node import Node, NodeOptions, open_node
from waypost.cluster.overview import cluster_status
from waypost.policy.errors import InvalidInput
from waypost.policy.subjects import is_subject
from waypost.relay.data_dir import replace_file
from waypost.server.context import SERVED_SETTINGS, ServeOptions
from waypost.server.http.contract import Reply
from waypost.server.http.errors import HttpError
from waypost.server.http.routing import make_http_app, respond, respond_rejected
from waypost.server.origins import parse_origin
from waypost.server.server import Listen, serve_app
from waypost.wire.cluster_bodies import ClusterStatus, NodeInfo
from waypost.wire.http_bodies import Health

log = logging.getLogger("waypost.cluster")

NODE_NAME_MAX_CHARS = 64
STATUS_S = 1.0
"""The state is read from the servers at most as often, however many ask."""
STATUS_TIMEOUT_S = 8.0
"""Less than Prometheus waits by default."""

_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none';"
        " frame-ancestors 'none'"
    ),
    "Referrer-Policy": "no-referrer",
}


class OwnApp:
    """The answers of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._status: tuple[float, ClusterStatus] | None = None
        self._lock = asyncio.Lock()
        page = resources.files("waypost.cluster") / "page"
        self._page = (page / "cluster.html").read_bytes()
        self._script = (page / "cluster.js").read_bytes()

    def make(self) -> tuple[Starlette, frozenset[str]]:
        """Return the ASGI application, and its paths."""
        handlers = {
            "/": self._show_page,
            "/cluster.js": self._show_script,
            "/readyz": self._readiness,
            "/metrics": self._metrics,
            "/v1/cluster": self._cluster,
            NODE_PATH: self._node_itself,
        }
        app = make_http_app()  # without a relay: health, and the files of the dashboard
        app.router.routes[:0] = [Route(path, handler) for path, handler in handlers.items()]
        return app, frozenset({*handlers, "/healthz"})

    async def _show_page(self, request: Request) -> Response:
        return Response(self._page, media_type="text/html", headers=_PAGE_HEADERS)

    async def _show_script(self, request: Request) -> Response:
        return Response(self._script, media_type="text/javascript", headers=_PAGE_HEADERS)

    async def _readiness(self, request: Request) -> Response:
        """Report whether the node is connected; the partitions below have a health of their own."""
        if not self._node.client.is_connected:
            return respond_rejected(HttpError(503, "no NATS server can be reached"))
        return respond(Reply(Health(status="ready")))

    async def _metrics(self, request: Request) -> Response:
        if self._node.serve_options.metrics == "operator" and not self._is_operator(request):
            return _reject_unknown()
        try:
            streams = {one.number: one for one in (await self._current_status()).partitions}
        except Exception as problem:  # what this node knows by itself is shown all the same
            log.info("cluster: metrics without those of the streams: %s", problem)
            streams = {}
        node = self._node
        partitions = [
            PartitionFigures(
                host.number,
                host.is_owner,
                bool(host.problem),
                host.take_overs,
                streams.get(host.number),
            )
            for host in node.hosts
        ]
        figures = NodeFigures(len(node.alive), node.client.is_connected, partitions)
        return Response(render_metrics(figures, node.append_times), media_type=CONTENT_TYPE_LATEST)

    async def _node_itself(self, request: Request) -> Response:
        """Show which node this is, by an id that means nothing to anybody else."""
        return respond(Reply(NodeInfo(instance=self._node.instance)))

    async def _cluster(self, request: Request) -> Response:
        if not self._is_operator(request):
            return _reject_unknown()
        try:
            return respond(Reply(await self._current_status()))
        except Exception as problem:
            return respond_rejected(HttpError(503, f"the servers do not answer: {problem}"))

    async def _current_status(self) -> ClusterStatus:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._status is None or now - self._status[0] > STATUS_S:
                node = self._node
                async with asyncio.timeout(STATUS_TIMEOUT_S):
                    found = await cluster_status(
                        node.client, node.options.cluster, node.values, node.partitions
                    )
                self._status = (now, _with_lags(found, node))
            return self._status[1]

    def _is_operator(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        operator = self._node.identities.operator
        return scheme.lower() == "bearer" and operator.matches(token.strip())


def _reject_unknown() -> Response:
    headers = {"WWW-Authenticate": "Bearer"}
    text = "this needs the operator's token: send 'Authorization: Bearer <token>'"
    return respond_rejected(HttpError(401, text, headers=headers))


def _with_lags(status: ClusterStatus, node: Node) -> ClusterStatus:
    """Return the state with what this node has not copied yet."""
    copied = {host.number: host.position for host in node.hosts}
    partitions = [
        msgspec.structs.replace(one, lag=max(0, one.position - copied.get(one.number, 0)))
        for one in status.partitions
    ]
    return msgspec.structs.replace(status, partitions=partitions)


def node_options(
    given: ClusterOptions, data_dir: Path, serve: ServeOptions, listen: Listen
) -> NodeOptions:
    """Return the options of a node. Raises `InvalidInput`."""
    found, name, address = parse_cluster(given.cluster), given.node, given.advertise
    if not is_subject(name) or "." in name or len(name) > NODE_NAME_MAX_CHARS:
        raise InvalidInput(
            f"a node's name has up to {NODE_NAME_MAX_CHARS} letters, digits, '_' and '-', not"
            f" {name!r:.80}"
        )
    origin = parse_origin(address, listen.port or 1, ("http", "https"))
    if not address.startswith(("http://", "https://")):
        raise InvalidInput(f"--advertise must be a URL, http:// or https://, not {address!r:.80}")
    return NodeOptions(
        servers=found.servers,
        cluster=found.name,
        name=name,
        address=origin.url,
        data_dir=data_dir,
        serve=serve,
        settings=msgspec.structs.replace(SERVED_SETTINGS, storage="journal"),
        is_local=listen.is_local,
        monitoring=given.monitoring,
    )


async def serve_node(options: NodeOptions, listen: Listen, on_ready: Callable[[str], None]) -> None:
    """Serve a node until a stop signal. Raises as `open_node` and `serve_app` do."""
    options.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with open_node(options) as node:
        token = options.data_dir / "operator-token"
        replace_file(token, node.identities.operator.text.encode())
        own, own_paths = OwnApp(node).make()
        checking: list[asyncio.Task[None]] = []

        def ready(url: str) -> None:
            checking.append(asyncio.create_task(keep_checking(node)))
            on_ready(url)

        try:
            await serve_app(Front(node, own, own_paths), node, listen, ready)
        finally:
            for task in checking:
                task.cancel()
