"""`serve`: run a relay with an HTTP and WebSocket interface."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import DEFAULT_DATA_DIR, require_modules
from waypost.policy.bounds import connections_max
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.cluster.address import ClusterOptions
    from waypost.server.server import Listen

_NEEDED = (
    "uvicorn",
    "starlette",
    "uvloop",
    "httptools",
    "prometheus_client",
    "websockets",
    "cryptography",
)


class Storage(StrEnum):
    """How mailboxes are stored."""

    MAILDIR = "maildir"
    JOURNAL = "journal"


class MetricsAccess(StrEnum):
    """Who may read the metrics."""

    OPEN = "open"
    OPERATOR = "operator"


class DirectoryAccess(StrEnum):
    """Which agents an agent may list."""

    OPEN = "open"
    CONTACTS = "contacts"
    CLOSED = "closed"


class LogFormat(StrEnum):
    """The format of the log."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="WAYPOST_DATA_DIR",
        help="Data directory of the relay.",
    ),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")]
Port = Annotated[
    int,
    typer.Option(
        "--port", min=0, max=65535, metavar="N", help="Port to listen on; 0 for any free one."
    ),
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="Certificate (PEM) for https.")
]
TlsKey = Annotated[
    Path | None,
    typer.Option("--tls-key", metavar="FILE", help="Private key (PEM) of the certificate."),
]
OriginNames = Annotated[
    list[str] | None,
    typer.Option(
        "--origin",
        metavar="URL|HOST:PORT",
        envvar="WAYPOST_ORIGIN",
        help="Name under which agents reach the relay; repeatable. Others are rejected.",
        show_default="the address it listens on",
    ),
]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="ADDRESS|NETWORK",
        envvar="WAYPOST_TRUSTED_PROXY",
        help="Proxy whose X-Forwarded-For names the caller; repeatable.",
        show_default="none",
    ),
]
Anonymous = Annotated[
    bool,
    typer.Option("--anonymous/--no-anonymous", help="Accept messages from senders without keys."),
]
ShowPressure = Annotated[
    bool, typer.Option("--show-pressure", help="Report to senders how full mailboxes are.")
]
MetricsChoice = Annotated[
    MetricsAccess,
    typer.Option("--metrics", help="Who may read /metrics: anyone, or only the operator."),
]
DirectoryChoice = Annotated[
    DirectoryAccess | None,
    typer.Option(
        "--directory",
        help="Agents that an agent may list: all, those it exchanged messages with, or none.",
        show_default="open if only this machine can connect, else contacts",
    ),
]
StorageChoice = Annotated[
    Storage | None,
    typer.Option(
        "--storage",
        help="Keep mailboxes as Maildir files, or in the journal only, which is faster.",
        show_default="that of the directory, else maildir",
    ),
]
Batch = Annotated[
    int,
    typer.Option(
        "--batch",
        min=1,
        max=1000,
        metavar="N",
        help="Stored messages per batch to a connecting agent.",
    ),
]
MaxConnections = Annotated[
    int,
    typer.Option(
        "--max-connections",
        min=1,
        max=connections_max,
        metavar="N",
        help="Connections at once; fewer if the limit of open files (ulimit -n) is lower.",
    ),
]
Lake = Annotated[
    Path | None,
    typer.Option(
        "--lake",
        metavar="DIR",
        envvar="WAYPOST_LAKE",
        help="Lake whose report and backtests the dashboard shows.",
        show_default="DATA_DIR/lake",
    ),
]
ClusterChoice = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        metavar="CLUSTER",
        envvar="WAYPOST_CLUSTER",
        help="Run a node of a cluster: nats://HOST:4222,HOST:4222/NAME.",
        show_default="none: one relay on this machine",
    ),
]
NodeName = Annotated[
    str | None,
    typer.Option("--node", metavar="NAME", help="With --cluster: the name of this node."),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        "--advertise",
        metavar="URL",
        help="With --cluster: where agents and other nodes reach this node.",
    ),
]
NatsMonitoring = Annotated[
    list[str] | None,
    typer.Option(
        "--nats-monitoring",
        metavar="URL",
        envvar="WAYPOST_NATS_MONITORING",
        help="With --cluster: monitoring address of a NATS server, to check its sync_interval;"
        " repeatable.",
        show_default="not checked",
    ),
]
LogFormatChoice = Annotated[
    LogFormat, typer.Option("--log-format", help="auto: text on a terminal, JSON elsewhere.")
]


HELP = """\
Run a relay until Ctrl-C or SIGTERM.

Agents connect with keys of their own ('waypost keys new'); the first to use
a subject owns it. A message to an agent that is away is stored until it
connects. Every confirmed message is on disk, so stopping the relay at any
moment loses none. The dashboard is at /, Prometheus metrics are at /metrics,
the API documentation is at /docs.

By default only this machine can connect. With --host ADDRESS other machines
can; give a certificate then, too, and with --origin each name that agents use
(also 127.0.0.1, if they do): the relay rejects requests for other names.

DIR/operator-token authorizes the operator:
'waypost stats --url URL --operator-token-file DIR/operator-token'.

\b
Examples:
  waypost serve
  waypost serve --data-dir /srv/waypost --port 7171 --storage journal
  waypost serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
  waypost serve --origin https://relay.example --origin 127.0.0.1
"""


def serve(  # noqa: PLR0913 - one parameter per option
    *,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    host: Host = "127.0.0.1",
    port: Port = 7171,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    origin: OriginNames = None,
    trusted_proxy: TrustedProxy = None,
    anonymous: Anonymous = True,
    show_pressure: ShowPressure = False,
    metrics: MetricsChoice = MetricsAccess.OPEN,
    directory: DirectoryChoice = None,
    storage: StorageChoice = None,
    batch: Batch = 50,
    max_connections: MaxConnections = connections_max,
    lake: Lake = None,
    cluster: ClusterChoice = None,
    node: NodeName = None,
    advertise: Advertise = None,
    nats_monitoring: NatsMonitoring = None,
    log_format: LogFormatChoice = LogFormat.AUTO,
) -> None:
    """Run a relay until Ctrl-C or SIGTERM."""
    require_modules("'waypost serve'", _NEEDED, "server")
    from waypost.cli.server_process import ServeCommand, run
    from waypost.server.context import ServeOptions

    run(
        ServeCommand(
            data_dir=data_dir,
            listen=_listen(host, port, (tls_cert, tls_key), origin, trusted_proxy),
            options=ServeOptions(
                anonymous=anonymous,
                show_pressure=show_pressure,
                metrics=metrics.value,
                directory=None if directory is None else directory.value,
                batch=batch,
                connections_max=max_connections,
                lake=lake,
            ),
            storage=storage,
            cluster=_node(cluster, node, advertise, nats_monitoring),
            log_format=log_format,
        )
    )


def _listen(
    host: str,
    port: int,
    tls: tuple[Path | None, Path | None],
    origins: list[str] | None,
    proxies: list[str] | None,
) -> "Listen":
    from waypost.server.server import Listen

    certificate, key = tls
    if (certificate is None) != (key is None):
        raise InvalidInput("give both --tls-cert and --tls-key, or neither")
    return Listen(
        host=host,
        port=port,
        certificate=certificate,
        key=key,
        origins=_split(origins),
        trusted_proxies=_split(proxies),
    )


def _node(
    cluster: str | None, node: str | None, advertise: str | None, monitoring: list[str] | None
) -> "ClusterOptions | None":
    """Return the options of a node; None for a single relay."""
    if cluster is None:
        if node is not None or advertise is not None or monitoring:
            raise InvalidInput("--node, --advertise and --nats-monitoring go with --cluster")
        return None
    if node is None or advertise is None:
        raise InvalidInput("--cluster needs --node NAME and --advertise URL")
    require_modules("'waypost serve --cluster'", ("nats",), "cluster")
    from waypost.cluster.address import ClusterOptions

    return ClusterOptions(
        cluster=cluster, node=node, advertise=advertise, monitoring=_split(monitoring)
    )


def _split(values: list[str] | None) -> tuple[str, ...]:
    """Return the parts of repeated values, each of which may be a list with commas or spaces."""
    return tuple(",".join(values or ()).replace(",", " ").split())
