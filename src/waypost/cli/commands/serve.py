"""`serve`: run a relay that agents reach over HTTP and WebSocket."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from waypost.cli.options import DEFAULT_DATA_DIR
from waypost.cli.requirements import require
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
    """How mailboxes are kept."""

    MAILDIR = "maildir"
    JOURNAL = "journal"


class LogFormat(StrEnum):
    """How the log is written."""

    AUTO = "auto"
    JSON = "json"
    TEXT = "text"


DataDir = Annotated[
    Path,
    typer.Option(
        "--data-dir",
        metavar="DIR",
        envvar="WAYPOST_DATA_DIR",
        help="Where the relay keeps everything.",
    ),
]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where to listen.")]
Port = Annotated[
    int, typer.Option("--port", min=0, max=65535, metavar="N", help="0: any that is free.")
]
TlsCert = Annotated[
    Path | None, typer.Option("--tls-cert", metavar="FILE", help="A certificate (PEM), for https.")
]
TlsKey = Annotated[
    Path | None, typer.Option("--tls-key", metavar="FILE", help="Its private key (PEM).")
]
Anonymous = Annotated[
    bool,
    typer.Option("--anonymous/--no-anonymous", help="Take messages from senders without keys."),
]
ShowPressure = Annotated[
    bool, typer.Option("--show-pressure", help="Let senders see how full mailboxes are.")
]
StorageChoice = Annotated[
    Storage | None,
    typer.Option(
        "--storage",
        help="Mailboxes as files anyone can look at, or in the journal alone: faster.",
        show_default="as the directory is, else maildir",
    ),
]
Batch = Annotated[
    int,
    typer.Option("--batch", min=1, max=1000, metavar="N", help="Stored messages sent at once."),
]
Lake = Annotated[
    Path | None,
    typer.Option(
        "--lake",
        metavar="DIR",
        envvar="WAYPOST_LAKE",
        help="Where the pipeline leaves its report for the dashboard.",
        show_default="DATA_DIR/lake",
    ),
]
LogFormatChoice = Annotated[
    LogFormat, typer.Option("--log-format", help="auto: text on a terminal, JSON elsewhere.")
]


def serve(  # noqa: PLR0913 - each is something an operator may choose
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
    """Serve a relay until Ctrl-C or SIGTERM.

    Agents connect with keys of their own ('waypost keys new'); the first to use
    a subject owns it. A message to somebody who is away is stored until they
    connect. What was confirmed to anyone is on disk, so ending the relay at any
    moment loses none of it. The dashboard is at /, numbers are at /metrics, the
    interface at /docs.

    It listens on this machine only, unless --host says otherwise; then give it a
    certificate, too. Whoever can read DIR/operator-token may run the relay from
    afar: 'waypost stats --url URL --operator-token-file DIR/operator-token'.

    \b
    Examples:
      waypost serve
      waypost serve --data-dir /srv/waypost --port 7171 --storage journal
      waypost serve --host 0.0.0.0 --tls-cert cert.pem --tls-key key.pem
    """
    require("serving", _NEEDED, "server")
    from waypost.cli.serving import Serving, run
    from waypost.server.context import ServeOptions
    from waypost.server.server import Listen

    if (tls_cert is None) != (tls_key is None):
        raise InvalidInput("--tls-cert and --tls-key come together")
    run(
        Serving(
            data_dir=data_dir,
            listen=Listen(host=host, port=port, certificate=tls_cert, key=tls_key),
            options=ServeOptions(
                anonymous=anonymous, show_pressure=show_pressure, batch=batch, lake=lake
            ),
            storage=storage,
            log_format=log_format,
        )
    )
