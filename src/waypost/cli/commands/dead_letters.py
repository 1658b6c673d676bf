"""`dead-letters`: messages that could not be delivered."""

from typing import Annotated

import typer

from waypost.cli.arguments import parse_duration
from waypost.cli.options import JsonOption, Where, on_a_relay

verbs = typer.Typer(
    help="List, redrive and purge messages that could not be delivered.", no_args_is_help=True
)

SubjectOption = Annotated[
    str | None, typer.Option("--subject", metavar="SUBJECT", help="Only those of this endpoint.")
]


@verbs.command("list")
@on_a_relay
def list_(
    where: Where,
    subject: Annotated[
        str | None, typer.Argument(help="Only those of this endpoint.", show_default=False)
    ] = None,
    group: Annotated[
        bool, typer.Option("--group", help="Count them by endpoint and reason instead.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List dead letters, the newest failure last.

    Works while a relay is running. A served relay tells its operator.

    \b
    Examples:
      waypost dead-letters list agent.billing
      waypost dead-letters list --group
    """
    from waypost.cli.rendering import console, dead_letters

    target = where.target()
    if group:
        groups = target.dead_letter_groups(subject)
        if json:
            console.print_json({"groups": groups})
        else:
            dead_letters.show_groups(groups)
        return
    letters, total = target.dead_letters(subject)
    if json:
        console.print_json({"dead_letters": letters})
    else:
        dead_letters.show_dead_letters(letters)
    if total > len(letters):
        console.note(
            f"these are the oldest {len(letters):,} of {total:,}; --group tells of all,"
            " SUBJECT of fewer"
        )


@verbs.command()
@on_a_relay
def redrive(
    where: Where,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ID]...", help="Which ones.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them.")] = False,
    subject: SubjectOption = None,
    json: JsonOption = False,
) -> None:
    """Put dead letters back into their mailboxes, at the end of the line.

    No check is repeated: you have decided. Their time to live still holds.

    \b
    Examples:
      waypost dead-letters redrive 01JZ8Q7V9S3T5W7X9Z1B3D5F7H
      waypost dead-letters redrive --all --subject agent.billing
    """
    if bool(ids) == every:
        raise typer.BadParameter("give one or more IDs, or --all")
    from waypost.cli.rendering import console

    done = where.target().redrive(None if every else ids, subject)
    if json:
        console.print_json(done)
    else:
        console.console().print(f"{console.plural(done.redriven, 'dead letter')} put back.")
    if done.not_redriven:
        names = ", ".join(console.plain(one) for one in done.not_redriven)
        console.note(f"not put back, because no such dead letter can be read here: {names}")
        raise typer.Exit(1)


@verbs.command()
@on_a_relay
def purge(
    where: Where,
    older_than: Annotated[
        str | None,
        typer.Option("--older-than", metavar="AGE", help="Only failures older than 12h, 7d, 2w."),
    ] = None,
    subject: SubjectOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    json: JsonOption = False,
) -> None:
    """Throw dead letters away, for good.

    Asks first, unless --yes is given. Without --older-than all of them go.

    \b
    Examples:
      waypost dead-letters purge --older-than 7d
      waypost dead-letters purge --subject agent.billing --yes
    """
    age = parse_duration(older_than) if older_than is not None else None
    from waypost.cli.rendering import console

    target = where.target()
    count = target.count_dead_letters(subject, age)
    if count and not yes:
        question = f"Throw away {console.plural(count, 'dead letter')} for good?"
        if not console.confirmed(question):
            console.note("nothing was purged")
            raise typer.Exit(1)
    purged = target.purge(subject, age) if count else 0
    if json:
        console.print_json({"purged": purged})
    else:
        console.console().print(f"{console.plural(purged, 'dead letter')} purged.")
