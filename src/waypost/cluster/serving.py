"""Serving a node: what it answers for itself, and how it listens and shuts down.

For itself, a node shows its health, the state of the cluster, and a page with both.

The state names nodes and partitions only, never agents; it is for the operator all the same.
"""

import asyncio
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from waypost.cluster.address import parse_cluster
from waypost.cluster.front import Front
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
from waypost.wire.cluster_bodies import ClusterStatus
from waypost.wire.http_bodies import Health

NODE_NAME_MAX_CHARS = 64
STATUS_S = 1.0
"""The state is read from the servers at most as often, however many ask."""

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
        return Response(render_metrics(self._node), media_type=CONTENT_TYPE_LATEST)

    async def _cluster(self, request: Request) -> Response:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not self._node.identities.operator.matches(token.strip()):
            headers = {"WWW-Authenticate": "Bearer"}
            text = "this needs the operator's token: send 'Authorization: Bearer <token>'"
            return respond_rejected(HttpError(401, text, headers=headers))
        try:
            return respond(Reply(await self._current_status()))
        except Exception as problem:
            return respond_rejected(HttpError(503, f"the servers do not answer: {problem}"))

    async def _current_status(self) -> ClusterStatus:
        async with self._lock:
            now = asyncio.get_running_loop().time()
            if self._status is None or now - self._status[0] > STATUS_S:
                node = self._node
                found = await cluster_status(
                    node.client, node.options.cluster, node.values, node.partitions
                )
                self._status = (now, found)
            return self._status[1]


def render_metrics(node: Node) -> bytes:
    """Return the metrics of a node; each partition has its own below its path."""
    registry = CollectorRegistry()
    registry.register(_NodeMetrics(node))
    return generate_latest(registry)


class _NodeMetrics:
    """Collects the metrics of a node when they are asked for."""

    def __init__(self, node: Node) -> None:
        self._node = node

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        alive = "Nodes of the cluster that are alive."
        yield GaugeMetricFamily("waypost_cluster_nodes", alive, value=len(self._node.alive))
        owned = GaugeMetricFamily(
            "waypost_partition_owned", "Whether this node owns a partition.", labels=["partition"]
        )
        failing = GaugeMetricFamily(
            "waypost_partition_failing",
            "Whether this node cannot follow or own a partition.",
            labels=["partition"],
        )
        for host in self._node.hosts:
            owned.add_metric([str(host.number)], host.is_owner)
            failing.add_metric([str(host.number)], bool(host.problem))
        yield from (owned, failing)


def node_options(
    cluster: str, name: str, address: str, data_dir: Path, serve: ServeOptions, listen: Listen
) -> NodeOptions:
    """Return the options of a node. Raises `InvalidInput`."""
    found = parse_cluster(cluster)
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
    )


async def serve_node(options: NodeOptions, listen: Listen, on_ready: Callable[[str], None]) -> None:
    """Serve a node until a stop signal. Raises as `open_node` and `serve_app` do."""
    options.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    async with open_node(options) as node:
        replace_file(options.data_dir / "cluster-name", options.cluster.encode())
        token = options.data_dir / "operator-token"
        replace_file(token, node.identities.operator.text.encode())
        own, own_paths = OwnApp(node).make()
        await serve_app(Front(node, own, own_paths), node, listen, on_ready)
