"""`serve`: run a relay with an HTTP and WebSocket interface."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from waypost.cli.options import DEFAULT_DATA_DIR, require_modules
from waypost.policy.errors import InvalidInput

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
Anonymous = Annotated[
    bool,
    typer.Option("--anonymous/--no-anonymous", help="Accept messages from senders without keys."),
]
ShowPressure = Annotated[
    bool, typer.Option("--show-pressure", help="Report to senders how full mailboxes are.")
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
LogFormatChoice = Annotated[
    LogFormat, typer.Option("--log-format", help="auto: text on a terminal, JSON elsewhere.")
]


def serve(  # noqa: PLR0913 - one parameter per option
    *,
    data_dir: DataDir = DEFAULT_DATA_DIR,
    host: Host = "127.0.0.1",
    port: Port = 7171,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    anonymous: Anonymous = True,
    show_pressure: ShowPressure = False,
    storage: StorageChoice = None,
    batch: Batch = 50,
    lake: Lake = None,
    log_format: LogFormatChoice = LogFormat.AUTO,
) -> None:
    """Run a relay until Ctrl-C or SIGTERM.

    Agents connect with keys of their own ('waypost keys new'); the first to use
    a subject owns it. A message to an agent that is away is stored until it
    connects. Every confirmed message is on disk, so stopping the relay at any
    moment loses none. The dashboard is at /, Prometheus metrics are at /metrics,
    the API documentation is at /docs.

    By default only this machine can connect. With --host ADDRESS other machines
    can; give a certificate then, too. DIR/operator-token authorizes the operator:
    'waypost stats --url URL --operator-token-file DIR/operator-token'.

    \b
    Examples:
      waypost serve
      waypost serve --data-dir /srv/waypost --port 7171 --storage journal
      waypost serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    require_modules("'waypost serve'", _NEEDED, "server")
    from waypost.cli.server_process import ServeCommand, run
    from waypost.server.context import ServeOptions
    from waypost.server.server import Listen

    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("give both --tls-cert and --tls-key, or neither")
    run(
        ServeCommand(
            data_dir=data_dir,
            listen=Listen(host=host, port=port, certificate=tls_cert, key=tls_key),
            options=ServeOptions(
                anonymous=anonymous, show_pressure=show_pressure, batch=batch, lake=lake
            ),
            storage=storage,
            log_format=log_format,
        )
    )
