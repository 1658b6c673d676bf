"""`rules`: list, add and remove access rules."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, RelayChoice, with_relay_options

if TYPE_CHECKING:
    from waypost.wire.http_bodies import RuleList

commands = CommandGroup(help="List, add and remove access rules.")

From = Annotated[str, typer.Argument(metavar="FROM", help="Pattern that matches senders.")]
To = Annotated[str, typer.Argument(metavar="TO", help="Pattern that matches endpoints.")]
FromKey = Annotated[
    str | None,
    typer.Option(
        "--from-key",
        metavar="PUBLIC_KEY",
        help="Only senders with this key, as shown by 'keys show'.",
        show_default=False,
    ),
]


class Action(StrEnum):
    """The decision of a rule that matches."""

    ALLOW = "allow"
    DENY = "deny"


@commands.command("list")
@with_relay_options
def list_(choice: RelayChoice, json: JsonOption = False) -> None:
    """List access rules in the order in which they are applied.

    The first matching rule decides; without a match a message is allowed. Exits
    with 1 if the rules file is unusable: everything is denied then.

    \b
    Example:
      waypost rules list
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console

    found = open_backend(choice).rules()
    _print_rules(found, json)
    if found.problem:
        console.note(found.problem)
        raise typer.Exit(1)


@commands.command()
@with_relay_options
def add(  # noqa: PLR0913 - one parameter per option
    choice: RelayChoice,
    action: Annotated[
        Action, typer.Argument(metavar="allow|deny", help="Allow or deny matching messages.")
    ],
    from_: From,
    to: To,
    *,
    priority: Annotated[
        int, typer.Option("--priority", metavar="N", help="Higher priorities are applied first.")
    ] = 0,
    from_key: FromKey = None,
    json: JsonOption = False,
) -> None:
    """Add an access rule, replacing one with the same patterns, key and priority.

    Of several rules with the same patterns, the one with the highest priority
    decides. A running relay applies it at once. With --from-key the rule matches only a
    sender that has authenticated at a served relay with this key.

    \b
    Examples:
      waypost rules add deny agent.spy 'agent.vault.>'
      waypost rules add allow agent.auditor 'agent.vault.>' --priority 10
    """
    from msgspec import UNSET

    from waypost.cli.backend import open_backend
    from waypost.policy.access import AccessRule, validate_rule

    rule = validate_rule(AccessRule(from_, to, action.value, priority, from_key or UNSET))
    _print_rules(open_backend(choice).add_rule(rule), json)


@commands.command()
@with_relay_options
def remove(
    choice: RelayChoice,
    from_: From,
    to: To,
    *,
    priority: Annotated[
        int | None,
        typer.Option(
            "--priority",
            metavar="N",
            help="Only the rule with this priority.",
            show_default="the rules of all priorities",
        ),
    ] = None,
    from_key: FromKey = None,
    json: JsonOption = False,
) -> None:
    """Remove the access rules with these patterns and this key, or no key.

    With --priority, only one of them. A running relay applies the change at once.

    \b
    Examples:
      waypost rules remove agent.spy 'agent.vault.>'
      waypost rules remove agent.spy 'agent.vault.>' --priority 10
    """
    from waypost.cli.backend import open_backend

    _print_rules(open_backend(choice).remove_rule(from_, to, from_key, priority), json)


def _print_rules(found: "RuleList", json: bool) -> None:
    from waypost.cli.rendering import config, console

    if json:
        console.print_json(found)
    else:
        config.show_rules(found)
