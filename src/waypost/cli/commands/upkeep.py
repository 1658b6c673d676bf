"""`verify` and `rebuild`: is everything in order, and how to put it in order."""

from typing import Annotated

import typer

from waypost.cli.options import JsonOption, Where, on_a_directory


@on_a_directory
def verify(
    where: Where,
    repair: Annotated[
        bool, typer.Option("--repair/--no-repair", help="Put right what can be put right.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Check journal, index and mailboxes against each other.

    Without --repair nothing is changed, and a relay may be running. With
    --repair none may be: torn writes are cut, flipped bytes put right, damaged
    parts set aside, the index rebuilt and mailbox files restored. Exits with 0
    if all is well or repaired, with 1 otherwise. Works on files, not on a URL.

    \b
    Examples:
      waypost verify
      waypost verify --repair --data-dir ./waypost-data
    """
    from waypost.cli.rendering import console, verification

    target = where.directory()
    with verification.segments_bar() as on_segment:
        report = target.verify(repair=repair, on_segment=on_segment)
    if json:
        console.print_json({"ok": report.ok, **_fields(report)})
    else:
        verification.show_report(report)
    if not report.ok:
        raise typer.Exit(1)


@on_a_directory
def rebuild(where: Where, json: JsonOption = False) -> None:
    """Write index.db anew from the journal.

    Never needed in the ordinary course of things: a relay does it by itself
    when the index is missing or damaged. No relay may be running. Works on
    files, not on a URL.

    \b
    Example:
      waypost rebuild --data-dir ./waypost-data
    """
    from waypost.cli.rendering import console

    messages, lossy = where.directory().rebuild()
    if json:
        console.print_json({"messages": messages, "journal_lost_events": lossy})
    else:
        said = console.plural(messages, "message")
        console.console().print(f"The index was rebuilt from the journal: {said}.")
    if lossy:
        console.note(
            "the journal has lost events, so messages may be back that were acknowledged, or"
            " missing; 'waypost verify' tells which events"
        )


def _fields(report: object) -> dict[str, object]:
    import msgspec

    return msgspec.structs.asdict(report) if isinstance(report, msgspec.Struct) else {}
