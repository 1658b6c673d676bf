"""`mcp`: an MCP server that gives a model a mailbox, and the tools to use it."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import (
    DEFAULT_URL,
    RelayChoice,
    guard_limits,
    require_modules,
    with_agent_options,
)
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.cli.remote.own_keys import NameLock
    from waypost.client.identity import Identity
    from waypost.wire.cards import AgentCard

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

OperatorTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--operator-token-file",
        metavar="FILE",
        help="Operator token, for tools that show the whole relay; only from this option.",
    ),
]


New = Annotated[
    bool,
    typer.Option(
        "--new",
        help="Make keys and take a free name: SUBJECT, or SUBJECT.2 in a second window.",
    ),
]
Description = Annotated[
    str | None,
    typer.Option("--description", metavar="TEXT", help="What this agent does, for others."),
]
Skills = Annotated[
    list[str] | None,
    typer.Option("--skill", metavar="WORD", help="What others find it by; repeatable."),
]
Shared = Annotated[
    bool,
    typer.Option(
        "--shared",
        help="Share the mailbox with other windows that have this option, too.",
    ),
]


Channel = Annotated[
    bool,
    typer.Option(
        "--channel",
        help="Wake Claude Code when messages arrive, as a channel; a preview there.",
    ),
]


Events = Annotated[
    bool,
    typer.Option(
        "--events",
        help="Offer the events extension of MCP, a draft, to hosts that know it.",
    ),
]


HELP = """\
Run an MCP server that acts as an agent, for an assistant or an editor.

The program starts this command and talks to it over stdin and stdout. It
gets thirteen tools: relay_send, relay_send_and_wait, relay_scheduled,
relay_inbox, relay_ack, relay_nack, relay_find_agents, relay_list_endpoints,
relay_register_endpoint, relay_status, relay_explain, relay_thread,
relay_reset_guard. A guard limits relay_send_and_wait, with the variables
AGENT_RATE_LIMIT_PER_MIN (10), AGENT_CB_FAILURE_THRESHOLD (5),
AGENT_CB_RESET_TIMEOUT_MS (30000) and AGENT_CB_SUCCESS_THRESHOLD (2).

Messages stay in the mailbox until they are acknowledged. Needs a served
relay and the agent's keys. With the operator's token the tools show every
endpoint and the history of every message; without it, the agent's own.

With --shared, several windows act as one agent: each message is shown in
one of them, and an answer in the one that asked. With --new, each window is
an agent of its own, and no keys need to be made before: the first free name
of SUBJECT, SUBJECT.2 and so on; without --subject, agent.LOGIN.

--description and --skill are the agent's card, by which others find it.
Without either, the relay keeps the card it has.

\b
Examples:
  waypost keys new agent.me
  waypost mcp --subject agent.me
  waypost mcp --key ./me.key --url https://relay.example.com
  waypost mcp --subject agent.me --http 127.0.0.1:7272
  waypost mcp --subject agent.me --shared
  waypost mcp --subject agent.me --channel
  waypost mcp --new --skill python --description "Writes Python."
"""


@with_agent_options
def mcp(  # noqa: PLR0913, PLR0917 - one parameter per option
    choice: RelayChoice,
    subject: Subject = None,
    http: Http = None,
    allow_host: AllowHost = None,
    http_token_file: HttpTokenFile = None,
    operator_token_file: OperatorTokenFile = None,
    shared: Shared = False,
    channel: Channel = False,
    events: Events = False,
    new: New = False,
    description: Description = None,
    skill: Skills = None,
) -> None:
    """Run an MCP server that acts as an agent, for an assistant or an editor."""
    require_modules("'waypost mcp'", _NEEDED, "mcp")
    _check_channel(channel, shared=shared, http=http is not None)
    if events and shared:
        raise InvalidInput(
            "--events announces messages that this window has: use it without --shared"
        )
    url, card = choice.url or DEFAULT_URL, _card(description, skill)
    if new:
        identity, lock = _new_identity(choice, url, subject, shared)
        choice.closing.callback(lock.release)
    else:
        identity = _identity(choice, subject)
    token = None if operator_token_file is None else _token(url, operator_token_file)
    # Imported last: the SDK is slow to load, and errors above should appear at once.
    from waypost.client.guard import MessagingGuard
    from waypost.mcp.connection import McpConnection
    from waypost.mcp.transport import parse_http, run

    address = None if http is None else parse_http(http, allow_host or (), http_token_file)
    guard = MessagingGuard(guard_limits())
    connection = McpConnection(
        url, identity, operator_token=token, guard=guard, shared=shared, card=card
    )
    note = partial(_note, identity.subject)
    run(connection, address, note, channel=channel, events=events)


def _check_channel(channel: bool, **given: bool) -> None:
    for name, is_given in given.items():
        if channel and is_given:
            raise InvalidInput(
                "--channel wakes the one program that started this command: use it without"
                f" --{name}"
            )


def _identity(choice: RelayChoice, subject: str | None) -> "Identity":
    from waypost.cli.remote.credentials import Credentials
    from waypost.cli.remote.operator_token import CredentialMissing

    if subject is None and choice.key is None:
        raise CredentialMissing(
            "no identity: give --subject SUBJECT or --key FILE; 'waypost keys new SUBJECT'"
            " creates keys, and --new does it for you"
        )
    return Credentials(choice).require_identity(subject)


def _new_identity(
    choice: RelayChoice, url: str, subject: str | None, shared: bool
) -> "tuple[Identity, NameLock]":
    from waypost.cli.remote.own_keys import default_base, take_name
    from waypost.policy.errors import InvalidInput

    if choice.key is not None:
        raise InvalidInput("give --new, which makes keys, or --key FILE, not both")
    if shared:
        raise InvalidInput(
            "give --new, with which each window has a name of its own, or --shared, with which they"
            " share one, not both"
        )
    return take_name(url, subject or default_base())


def _card(description: str | None, skills: list[str] | None) -> "AgentCard | None":
    from waypost.wire.cards import AgentCard

    if description is None and not skills:
        return None
    return AgentCard(description=description or "", skills=tuple(skills or ()))


def _token(url: str, file: Path) -> str | None:
    from waypost.cli.remote.operator_token import OperatorToken

    return OperatorToken(RelayChoice(operator_token_file=file), url).for_relay()


def _note(subject: str, url: str) -> None:
    typer.echo(f"waypost: {subject} at {url}; stop with Ctrl-C", err=True)
