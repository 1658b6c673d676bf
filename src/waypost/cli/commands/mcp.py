"""`mcp`: an MCP server that gives a model a mailbox, and the tools to use it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import (
    DEFAULT_URL,
    OperatorOption,
    RelayChoice,
    require_modules,
    with_agent_options,
)

if TYPE_CHECKING:
    from waypost.cli.remote.credentials import Credentials

_NEEDED = ("mcp", "uvicorn", "websockets", "cryptography", "httpx")

Subject = Annotated[
    str | None,
    typer.Option(
        "--subject",
        metavar="SUBJECT",
        envvar="WAYPOST_SUBJECT",
        help="Agent to act as; not needed with --key.",
    ),
]
Http = Annotated[
    str | None,
    typer.Option(
        "--http",
        metavar="HOST:PORT",
        help="Serve streamable HTTP at this address, instead of stdin and stdout.",
    ),
]
AllowHost = Annotated[
    list[str] | None,
    typer.Option(
        "--allow-host",
        metavar="NAME",
        help="With --http: an allowed Host header, with its port, besides localhost.",
    ),
]
HttpTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--http-token-file",
        metavar="FILE",
        help="With --http: requests must carry the bearer token in this file.",
    ),
]


@with_agent_options
def mcp(
    choice: RelayChoice,
    subject: Subject = None,
    http: Http = None,
    allow_host: AllowHost = None,
    http_token_file: HttpTokenFile = None,
    operator_token_file: OperatorOption = None,
) -> None:
    """Run an MCP server that acts as an agent, for an assistant or an editor.

    The program starts this command and talks to it over stdin and stdout. It
    gets eight tools: relay_send, relay_send_and_wait, relay_inbox, relay_ack,
    relay_list_endpoints, relay_register_endpoint, relay_status, relay_explain.
    Messages stay in the mailbox until they are acknowledged. Needs a served
    relay and the agent's keys. With the operator's token the tools show every
    endpoint and the history of every message; without it, the agent's own.

    \b
    Examples:
      waypost keys new agent.me
      waypost mcp --subject agent.me
      waypost mcp --key ./me.key --url https://relay.example.com
      waypost mcp --subject agent.me --http 127.0.0.1:7272
    """
    require_modules("'waypost mcp'", _NEEDED, "mcp")
    credentials = _credentials(choice, subject, operator_token_file)
    identity = credentials.require_identity(subject)
    token = credentials.operator_token()
    # Imported last: the SDK is slow to load, and errors above should appear at once.
    from waypost.mcp.connection import McpConnection
    from waypost.mcp.transport import parse_http, run

    address = None if http is None else parse_http(http, allow_host or (), http_token_file)
    connection = McpConnection(choice.url or DEFAULT_URL, identity, operator_token=token)
    run(connection, address, lambda url: _note(identity.subject, url))


def _credentials(
    choice: RelayChoice, subject: str | None, token_file: Path | None
) -> "Credentials":
    from dataclasses import replace

    from waypost.cli.remote.credentials import CredentialMissing, Credentials

    if subject is None and choice.key is None:
        raise CredentialMissing(
            "no identity: give --subject SUBJECT or --key FILE; 'waypost keys new SUBJECT'"
            " creates keys"
        )
    return Credentials(replace(choice, operator_token_file=token_file))


def _note(subject: str, url: str) -> None:
    typer.echo(f"waypost: {subject} at {url}; stop with Ctrl-C", err=True)
