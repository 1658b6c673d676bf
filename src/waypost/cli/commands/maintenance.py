"""`endpoints`, `stats`, `verify` and `rebuild`: inspect a relay, check and repair its files."""

from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from waypost.cli.options import (
    JsonOption,
    RelayChoice,
    parse_instant,
    require_modules,
    with_data_dir_options,
    with_relay_options,
)
from waypost.files import read_file
from waypost.policy.errors import InvalidInput

_KEY_FILE_MAX_BYTES = 1024

ArchiveArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[DIR]",
        help="With --public-key: a copy of a journal; else the data directory.",
        show_default=False,
    ),
]
RepairOption = Annotated[
    bool, typer.Option("--repair/--no-repair", help="Repair what can be repaired.")
]
PublicKeyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--public-key",
        metavar="KEY|FILE",
        help="Check the chain and signatures of this relay; repeatable.",
        show_default=False,
    ),
]
SinceOption = Annotated[
    datetime | None,
    typer.Option(
        "--since",
        metavar="TIME",
        parser=parse_instant,
        help="With --public-key: what the journal has to hold from this time on.",
        show_default=False,
    ),
]
UntilOption = Annotated[
    datetime | None,
    typer.Option(
        "--until",
        metavar="TIME",
        parser=parse_instant,
        help="With --public-key: the last signature must not be earlier.",
        show_default=False,
    ),
]


@with_relay_options
def endpoints(choice: RelayChoice, json: JsonOption = False) -> None:
    """List the endpoints, with the message counts of their mailboxes.

    A relay may be running. On a served relay this needs the operator's token.

    \b
    Example:
      waypost endpoints --data-dir ./waypost-data
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console, maintenance

    found = open_backend(choice).endpoints()
    if json:
        console.print_json({"endpoints": found})
    else:
        maintenance.show_endpoints(found)


@with_relay_options
def stats(choice: RelayChoice, json: JsonOption = False) -> None:
    """Show statistics and problems of a relay.

    First what to look at, the most urgent first, each with the command that acts
    on it: a full disk, full mailboxes, open circuit breakers, stuck agents,
    senders with many rejections, old messages. Then problems of the relay itself,
    such as a config.json that cannot be used; counts of pending, leased and dead
    messages; how full each mailbox is and which sender fills it; and recent
    events, counted over the newest 64 MiB of the journal. A relay may be running.
    On a served relay this needs the operator's token, and events are counted
    since its start.

    \b
    Example:
      waypost stats --json | jq .by_status
    """
    from waypost.cli.backend import open_backend
    from waypost.cli.rendering import console, maintenance

    found = open_backend(choice).stats()
    if json:
        console.print_json(found)
    else:
        maintenance.show_stats(found, choice.words())


@with_data_dir_options
def verify(  # noqa: PLR0913 - one parameter per option
    choice: RelayChoice,
    archive: ArchiveArgument = None,
    *,
    repair: RepairOption = False,
    public_key: PublicKeyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    json: JsonOption = False,
) -> None:
    """Check journal, index and mailboxes against each other.

    Without --repair nothing is changed, and a relay may be running. With
    --repair no relay may be running: torn writes are truncated, flipped bytes
    corrected, damaged parts set aside, the index rebuilt and mailbox files
    restored. Exits with 0 if everything is in order or repaired, else with 1.
    Works on files, not on a URL.

    With --public-key, the journal alone is checked: that it is whole and
    unchanged since --since, and signed by that relay, the last time at or after
    --until. 'waypost serve' prints the key. Segments without index and mailboxes
    are enough.

    \b
    Examples:
      waypost verify
      waypost verify --repair --data-dir ./waypost-data
      waypost verify --public-key KEY --since 2026-11-01 ./archive
    """
    import msgspec

    from waypost.cli.backend import open_local
    from waypost.cli.rendering import console, maintenance

    choice = replace(choice, data_dir=archive or choice.data_dir)
    if public_key:
        if repair:
            raise InvalidInput("--repair changes a journal: give it without --public-key")
        _verify_archive(choice.data_dir, public_key, (since, until), json)
        return
    if since is not None or until is not None:
        raise InvalidInput("give the relay's --public-key, too: 'waypost keys relay' prints it")
    with maintenance.segments_bar() as on_segment:
        report = open_local(choice).verify(repair=repair, on_segment=on_segment)
    if json:
        console.print_json({"ok": report.ok, **msgspec.structs.asdict(report)})
    else:
        maintenance.show_report(report)
    if not report.ok:
        raise typer.Exit(1)


def _verify_archive(
    directory: Path,
    keys: list[str],
    period: tuple[datetime | None, datetime | None],
    json: bool,
) -> None:
    """Print whether a journal is whole, unchanged and signed; exit with 1 if it is not."""
    require_modules("verify --public-key", ("cryptography",), "client")
    import msgspec

    from waypost.cli.rendering import archive, console, maintenance
    from waypost.relay.verify.archive import ArchivePeriod, verify_archive
    from waypost.server.identity.challenges import is_signed_by

    with maintenance.segments_bar() as on_segment:
        report = verify_archive(
            directory,
            [_public_key(one) for one in keys],
            is_signed_by,
            ArchivePeriod(*(0 if at is None else int(at.timestamp() * 1_000_000) for at in period)),
            on_segment,
        )
    if json:
        console.print_json({"ok": report.ok, **msgspec.structs.asdict(report)})
    else:
        archive.show_archive(report)
    if not report.ok:
        raise typer.Exit(1)


def _public_key(given: str) -> str:
    """Return a key, or the content of the file with that name."""
    from waypost.policy.errors import InvalidMessage
    from waypost.wire.handshake import signing_key_from

    try:
        key = read_file(given, _KEY_FILE_MAX_BYTES).decode(errors="replace").strip()
    except FileNotFoundError:
        key = given
    except OSError as problem:
        raise InvalidInput(f"cannot read {given}: {problem.strerror}") from None
    try:
        signing_key_from(key)
    except InvalidMessage:
        raise InvalidInput(
            f"--public-key {given:.60}: neither the public key of a relay nor a file with one;"
            " 'waypost keys relay' prints it on the relay's machine"
        ) from None
    return key


@with_data_dir_options
def rebuild(
    choice: RelayChoice,
    from_mailboxes: Annotated[
        bool,
        typer.Option(
            "--from-mailboxes", help="Make a new journal from the mailbox files; the old is lost."
        ),
    ] = False,
    json: JsonOption = False,
) -> None:
    """Rebuild index.db from the journal, or a lost journal from the mailboxes.

    Rarely needed: a relay rebuilds a missing or damaged index when it starts.
    With --from-mailboxes, pending messages and dead letters are read from the
    Maildir files, and those that cannot be used are listed; an existing journal
    is never overwritten. No relay may be running. Works on files, not on a URL.

    \b
    Examples:
      waypost rebuild --data-dir ./waypost-data
      waypost rebuild --from-mailboxes
    """
    from waypost.cli.backend import open_local
    from waypost.cli.rendering import console, maintenance

    if from_mailboxes:
        report = open_local(choice).salvage()
        if json:
            console.print_json(report)
        else:
            maintenance.show_salvage(report)
        return
    messages, lossy = open_local(choice).rebuild()
    if json:
        console.print_json({"messages": messages, "journal_lost_events": lossy})
    else:
        count = console.plural(messages, "message")
        console.console().print(f"Rebuilt the index from the journal: {count}.")
    if lossy:
        console.note(
            "the journal has lost events, so acknowledged messages may be back and others may be"
            " missing; run 'waypost verify' for the list of lost events"
        )
