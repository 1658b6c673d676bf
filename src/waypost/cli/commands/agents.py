"""`agents`: list agents, show one, disconnect one, and release its leases."""

from typing import Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, RelayChoice, with_relay_options

commands = CommandGroup(help="List agents, show or disconnect one, and release its leases.")

Subject = Annotated[
    str, typer.Argument(metavar="SUBJECT", help="The agent, for example agent.web.")
]


Sender = Annotated[
    str | None,
    typer.Option("--sender", metavar="SUBJECT", help="Agent to look as; else the operator."),
]


@commands.command("list")
@with_relay_options
def list_(
    choice: RelayChoice,
    skill: Annotated[
        str | None,
        typer.Option("--skill", metavar="WORD", help="List agents whose card has this skill."),
    ] = None,
    sender: Sender = None,
    json: JsonOption = False,
) -> None:
    """List the agents that are connected by WebSocket; stuck ones come first.

    An agent is stuck if it has unacknowledged messages, and has not acked,
    nacked or extended one for leaseTimeoutMs. This needs a served relay and its
    operator's token.

    With --skill, or with the keys of an agent (--sender or --key), list the
    directory instead: agents with their cards, connected or not. An agent sees
    those that the relay's --directory lets it see.

    \b
    Examples:
      waypost agents list --url http://127.0.0.1:7171
      waypost agents list --skill python --sender agent.me --url ...
    """
    from waypost.cli.backend import open_agents
    from waypost.cli.rendering import console, maintenance

    relay = open_agents(choice)
    if skill is None and sender is None and choice.key is None:
        connected = relay.agents()
        if json:
            console.print_json({"agents": connected})
        else:
            maintenance.show_agents(connected)
        return
    found = relay.find_agents(skill, sender)
    if json:
        console.print_json({"agents": found})
    else:
        maintenance.show_directory(found, skill)


@commands.command()
@with_relay_options
def show(
    choice: RelayChoice, subject: Subject, sender: Sender = None, json: JsonOption = False
) -> None:
    """Show an agent: its key, its card, and whether it is connected.

    Agents write their cards themselves: a card proves nothing, the key does.
    Needs a served relay, and the keys of an agent (--sender or --key) that may
    see this one, or the operator's token.

    \b
    Example:
      waypost agents show agent.coder --sender agent.me --url ...
    """
    from waypost.cli.backend import open_agents
    from waypost.cli.rendering import console, maintenance

    found = open_agents(choice).agent(subject, sender)
    if json:
        console.print_json(found)
    else:
        maintenance.show_agent(found)


@commands.command()
@with_relay_options
def disconnect(choice: RelayChoice, subject: Subject, json: JsonOption = False) -> None:
    """End the connection of an agent; its unacknowledged messages return to the queue.

    It may connect again at once: to keep it away, free its name with
    'names unbind', or give the name to another key. This needs a served relay
    and its operator's token.

    \b
    Example:
      waypost agents disconnect agent.web --url http://127.0.0.1:7171
    """
    from waypost.cli.backend import open_agents

    done = open_agents(choice).disconnect(subject)
    _print_done(subject, done.count, "disconnected", json)


@commands.command()
@with_relay_options
def release(choice: RelayChoice, subject: Subject, json: JsonOption = False) -> None:
    """Return all messages that an agent has leased to its queue.

    Their deliveries do not count as failed. If the agent is connected, it gets no
    more messages until it acks, nacks or extends one. Leases end when a relay
    stops, so this needs a served relay and its operator's token.

    \b
    Example:
      waypost agents release agent.web --url http://127.0.0.1:7171
    """
    from waypost.cli.backend import open_agents
    from waypost.cli.rendering.console import plural

    done = open_agents(choice).release_leases(subject)
    _print_done(subject, done.count, f"{plural(done.count, 'message')} released", json)


def _print_done(subject: str, count: int, text: str, json: bool) -> None:
    from waypost.cli.rendering import console
    from waypost.wire.printable import printable

    if json:
        console.print_json({"subject": subject, "count": count})
    else:
        console.console().print(printable(f"{subject}: {text}."), soft_wrap=True)
