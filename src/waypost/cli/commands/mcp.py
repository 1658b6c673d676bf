"""`mcp`: give a program that speaks MCP a mailbox, and the tools to use it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import DEFAULT_URL, OperatorOption, Where, as_an_agent
from waypost.cli.requirements import require

if TYPE_CHECKING:
    from waypost.cli.remote.credentials import Credentials

_NEEDED = ("mcp", "uvicorn", "websockets", "cryptography", "httpx")

Subject = Annotated[
    str | None,
    typer.Option(
        "--subject",
        metavar="SUBJECT",
        envvar="WAYPOST_SUBJECT",
        help="The agent to be; not needed with --key.",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="Serve over streamable HTTP there, instead of stdin and stdout.",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="With --http: a name it may be called by, with its port, besides localhost.",
    ),
]
HttpTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--http-token-file",
        metavar="FILE",
        help="With --http: requests must carry the token in this file.",
    ),
]


@as_an_agent
def mcp(
    where: Where,
    subject: Subject = None,
    http: Http = None,
    allow_host: AllowHost = None,
    http_token_file: HttpTokenFile = None,
    operator_token_file: OperatorOption = None,
) -> None:
    """Be an agent for a program that speaks MCP: an assistant, an editor.

    The program starts this command and talks to it over stdin and stdout. It
    gets eight tools: relay_send, relay_send_and_wait, relay_inbox, relay_ack,
    relay_list_endpoints, relay_register_endpoint, relay_status, relay_explain.
    Messages stay in the mailbox until they are acknowledged. Needs a relay that
    is served, and the agent's keys. With the operator's token the tools show
    every endpoint and every story; without it, the agent's own.

    \b
    Examples:
      waypost keys new agent.me
      waypost mcp --subject agent.me
      waypost mcp --key ./me.key --url https://relay.example.com
      waypost mcp --subject agent.me --http 127.0.0.1:7272
    """
    require("serving MCP", _NEEDED, "mcp")
    credentials = _credentials(where, subject, operator_token_file)
    identity = credentials.require_identity(subject)
    token = credentials.operator_token()
    # Loaded last: the SDK takes a while, and whoever is told what is wrong need not wait for it.
    from waypost.mcp.connection import McpConnection
    from waypost.mcp.transport import parse_http, run

    address = None if http is None else parse_http(http, allow_host or (), http_token_file)
    connection = McpConnection(where.url or DEFAULT_URL, identity, operator_token=token)
    run(connection, address, lambda url: _note(identity.subject, url))


def _credentials(where: Where, subject: str | None, token_file: Path | None) -> "Credentials":
    from dataclasses import replace

    from waypost.cli.remote.credentials import CredentialMissing, Credentials

    if subject is None and where.key is None:
        raise CredentialMissing(
            "say which agent to be, with --subject SUBJECT or --key FILE; 'waypost keys new"
            " SUBJECT' makes keys"
        )
    return Credentials(replace(where, operator_token_file=token_file))


def _note(subject: str, url: str) -> None:
    typer.echo(f"waypost: {subject} at {url}; Ctrl-C ends it", err=True)
