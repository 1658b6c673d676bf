"""`dead-letters`: list, redrive and purge messages that could not be delivered."""

from typing import Annotated

import typer

from waypost.cli.help import CommandGroup
from waypost.cli.options import JsonOption, RelayChoice, parse_duration, with_relay_options

commands = CommandGroup(help="List, redrive and purge messages that could not be delivered.")

SubjectOption = Annotated[
    str | None,
    typer.Option("--subject", metavar="SUBJECT", help="Only the dead letters at this endpoint."),
]


@commands.command("list")
@with_relay_options
def list_(
    choice: RelayChoice,
    subject: Annotated[
        str | None,
        typer.Argument(help="Only the dead letters at this endpoint.", show_default=False),
    ] = None,
    group: Annotated[
        bool, typer.Option("--group", help="Show counts by endpoint and reason instead.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """List dead letters, the newest failure last.

    A relay may be running. On a served relay this needs the operator's token.

    \b
    Examples:
      waypost dead-letters list agent.billing
      waypost dead-letters list --group
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console, messages

    relay = open_backend(choice)
    if group:
        groups = relay.dead_letter_groups(subject)
        if json:
            console.print_json({"groups": groups})
        else:
            messages.show_dead_letter_groups(groups)
        return
    dead_letters, total = relay.dead_letters(subject)
    if json:
        console.print_json({"dead_letters": dead_letters})
    else:
        messages.show_dead_letters(dead_letters)
    if total > len(dead_letters):
        console.note(
            f"these are the oldest {len(dead_letters):,} of {total:,}; use --group for all of them,"
            " or a SUBJECT for fewer"
        )


@commands.command()
@with_relay_options
def redrive(
    choice: RelayChoice,
    ids: Annotated[
        list[str] | None,
        typer.Argument(metavar="ID", help="Ids of dead letters.", show_default=False),
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Redrive all dead letters.")] = False,
    subject: SubjectOption = None,
    json: JsonOption = False,
) -> None:
    """Move dead letters back into their mailboxes, to the end of the queue.

    No policy check is repeated. Their time to live still applies. Exits with 1
    if a dead letter was not found or cannot be read.

    \b
    Examples:
      waypost dead-letters redrive 01JZ8Q7V9S3T5W7X9Z1B3D5F7H
      waypost dead-letters redrive --all --subject agent.billing
    """
    if bool(ids) == every:
        raise typer.BadParameter("give one or more IDs, or --all")
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console

    done = open_backend(choice).redrive(None if every else ids, subject)
    if json:
        console.print_json(done)
    else:
        console.console().print(f"{console.plural(done.redriven, 'dead letter')} redriven.")
    if done.not_redriven:
        ids_left = ", ".join(done.not_redriven)
        console.note(
            f"not redriven, because not found or not readable: {ids_left};"
            " 'waypost dead-letters list' shows all"
        )
        raise typer.Exit(1)


@commands.command()
@with_relay_options
def purge(
    choice: RelayChoice,
    older_than: Annotated[
        str | None,
        typer.Option(
            "--older-than", metavar="AGE", help="Only failures older than AGE: 12h, 7d, 2w."
        ),
    ] = None,
    subject: SubjectOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")] = False,
    json: JsonOption = False,
) -> None:
    """Delete dead letters permanently.

    Asks for confirmation, unless --yes is given. Without --older-than all of them
    are deleted.

    \b
    Examples:
      waypost dead-letters purge --older-than 7d
      waypost dead-letters purge --subject agent.billing --yes
    """
    age = parse_duration(older_than) if older_than is not None else None
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console

    relay = open_backend(choice)
    count = relay.count_dead_letters(subject, age)
    if count and not yes:
        question = f"Delete {console.plural(count, 'dead letter')} permanently?"
        if not console.ask(question):
            console.note("nothing was purged")
            raise typer.Exit(1)
    purged = relay.purge(subject, age) if count else 0
    if json:
        console.print_json({"purged": purged})
    else:
        console.console().print(f"{console.plural(purged, 'dead letter')} purged.")
