"""`keys`: create, show, rotate and unbind the keys of an agent."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.commands.names import unbind
from waypost.cli.help import CommandGroup
from waypost.cli.options import (
    JsonOption,
    RelayChoice,
    require_modules,
    with_agent_options,
    with_data_dir_options,
)
from waypost.wire.printable import printable

if TYPE_CHECKING:
    from waypost.client.identity import Identity


commands = CommandGroup(help="Create, show, rotate and unbind the keys that identify an agent.")


@commands.command()
def new(
    subject: Annotated[
        str, typer.Argument(help="The agent, for example agent.web.", show_default=False)
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            envvar="WAYPOST_KEY",
            help="File to save the keys in.",
            show_default="~/.config/waypost/SUBJECT.key",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Create new keys for an agent, in a file that only you can read.

    The first agent to use a subject at a relay owns it, and these keys identify
    the agent from then on. Keep the file: without it the subject is lost at that
    relay. An existing file is never overwritten.

    \b
    Examples:
      waypost keys new agent.web
      waypost keys new agent.web --out ./web.key
    """
    _require_cryptography()
    from waypost.cli.remote.credentials import default_key_file
    from waypost.client.identity import Identity

    identity = Identity.new(subject)
    file = default_key_file(subject) if out is None else out
    identity.save(file)
    _show(identity, file, json)


@commands.command()
def show(
    file: Annotated[
        Path,
        typer.Argument(
            envvar="WAYPOST_KEY",
            help="A file created by 'keys new', or the agent whose keys it saved.",
            show_default=False,
        ),
    ],
    json: JsonOption = False,
) -> None:
    """Show the public part of an agent's keys.

    None of it is secret. The public key identifies the agent, the sealing key
    encrypts payloads for it, and a signature proves that both keys belong to it.

    \b
    Examples:
      waypost keys show agent.web
      waypost keys show ./web.key --json
    """
    _require_cryptography()
    from waypost.cli.remote.credentials import default_key_file
    from waypost.client.identity import Identity

    saved = default_key_file(file.name)
    if not file.exists() and file.parent == Path() and saved.exists():
        file = saved
    _show(Identity.load(file), file, json)


@commands.command()
@with_agent_options
def rotate(
    choice: RelayChoice,
    subject: Annotated[
        str | None, typer.Argument(help="The agent; not needed with --key.", show_default=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Replace the keys of an agent at a served relay, while it runs.

    The old keys prove who you are, and are rejected from then on: connections
    that use them end, and so do their tokens. The new keys are in the same file;
    the old ones are kept beside it, in FILE.old-KEY. What was sealed to the old
    keys still opens with the new file. If the command was interrupted, run it
    again. Other agents that remember the old key must trust the new one, and
    access rules that name it must name the new one.

    If the keys are lost, ask the operator to run 'waypost keys unbind SUBJECT',
    then create new ones with 'waypost keys new'.

    \b
    Examples:
      waypost keys rotate agent.web
      waypost keys rotate --key ./web.key --url https://relay.example.com
    """
    _require_cryptography()
    from waypost.cli.remote.own_keys import rotate_keys

    identity, kept = rotate_keys(choice, subject)
    assert identity.file is not None
    _show(identity, identity.file, json)
    if not json:
        typer.echo(f"  old keys     {printable(str(kept))}; the relay rejects them")


@commands.command()
@with_data_dir_options
def relay(choice: RelayChoice, json: JsonOption = False) -> None:
    """Show the public key with which a served relay signs its journal.

    Keep a copy out of reach of those who can change the journal: 'waypost verify
    --public-key KEY' then shows that a journal is unchanged.

    \b
    Examples:
      waypost keys relay --data-dir ./waypost-data
      waypost keys relay > relay.pub
    """
    _require_cryptography()
    from waypost.cli.rendering import console
    from waypost.server.identity.relay_key import RelayKey

    public_key = RelayKey.load(choice.data_dir).public_key
    if json:
        console.print_json({"public_key": public_key})
    else:
        typer.echo(public_key)


commands.command()(unbind)  # the same as `names unbind`: who has lost a key looks here


def _show(identity: "Identity", file: Path, json: bool) -> None:
    import msgspec

    from waypost.cli.rendering import console

    if json:
        console.print_json({"file": str(file), **msgspec.structs.asdict(identity.card)})
        return
    out = console.console()
    out.print(f"{identity.subject}: keys in {printable(str(file))}", soft_wrap=True)
    out.print(f"  public key   {identity.public_key}", soft_wrap=True)
    out.print(f"  sealing key  {identity.sealing_key}", soft_wrap=True)


def _require_cryptography() -> None:
    require_modules("keys", ("cryptography",), "client")
