"""`rules`: who may write to whom."""

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import JsonOption, Where, on_a_relay

if TYPE_CHECKING:
    from waypost.wire.http_bodies import RuleList

verbs = typer.Typer(help="List, add and remove access rules.", no_args_is_help=True)

From = Annotated[str, typer.Argument(metavar="FROM", help="A pattern over senders.")]
To = Annotated[str, typer.Argument(metavar="TO", help="A pattern over endpoints.")]


class Action(StrEnum):
    """What a rule does with those it is about."""

    ALLOW = "allow"
    DENY = "deny"


@verbs.command("list")
@on_a_relay
def list_(where: Where, json: JsonOption = False) -> None:
    """List access rules in the order in which they are tried.

    The first that matches decides; without a match, all is allowed. Exits with 1
    if the file of the rules cannot be used: then everything is denied.

    \b
    Example:
      waypost rules list
    """
    from waypost.cli.rendering import console

    found = where.target().rules()
    _tell(found, json)
    if found.problem:
        console.note(found.problem)
        raise typer.Exit(1)


@verbs.command()
@on_a_relay
def add(
    where: Where,
    action: Annotated[Action, typer.Argument(metavar="allow|deny", help="What it does.")],
    from_: From,
    to: To,
    priority: Annotated[
        int, typer.Option("--priority", metavar="N", help="Higher ones are tried first.")
    ] = 0,
    json: JsonOption = False,
) -> None:
    """Add an access rule, in place of one with the same patterns.

    Works while a relay is running, which takes it over at once.

    \b
    Examples:
      waypost rules add deny agent.spy 'agent.vault.>'
      waypost rules add allow agent.auditor 'agent.vault.>' --priority 10
    """
    from waypost.policy.access import AccessRule, validate_rule

    rule = validate_rule(AccessRule(from_, to, action.value, priority))
    _tell(where.target().add_rule(rule), json)


@verbs.command()
@on_a_relay
def remove(where: Where, from_: From, to: To, json: JsonOption = False) -> None:
    """Remove the access rule with these patterns.

    \b
    Example:
      waypost rules remove agent.spy 'agent.vault.>'
    """
    _tell(where.target().remove_rule(from_, to), json)


def _tell(found: "RuleList", json: bool) -> None:
    from waypost.cli.rendering import console, rules

    if json:
        console.print_json(found)
    else:
        rules.show_rules(found)
