"""`keys`: make and show the keys by which a relay knows an agent."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import JsonOption

if TYPE_CHECKING:
    from waypost.client.identity import Identity

verbs = typer.Typer(
    help="Make and show the keys by which a relay knows an agent.", no_args_is_help=True
)


@verbs.command()
def new(
    subject: Annotated[str, typer.Argument(help="Whose keys: agent.web, say.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            metavar="FILE",
            envvar="WAYPOST_KEY",
            help="Where to put them.",
            show_default="~/.config/waypost/SUBJECT.key",
        ),
    ] = None,
    json: JsonOption = False,
) -> None:
    """Make new keys for an agent, in a file that only you can read.

    A relay takes whoever first shows up as a subject for its owner, and from
    then on knows it by these keys. Keep the file: without it nobody can be
    that agent there again. It is never overwritten.

    \b
    Examples:
      waypost keys new agent.web
      waypost keys new agent.web --out ./web.key
    """
    _require_cryptography()
    from waypost.cli.remote.credentials import usual_key_file
    from waypost.client.identity import Identity

    identity = Identity.new(subject)
    file = usual_key_file(subject) if out is None else out
    identity.save(file)
    _show(identity, file, json)


@verbs.command()
def show(
    file: Annotated[
        Path,
        typer.Argument(envvar="WAYPOST_KEY", help="A file made by 'keys new'.", show_default=False),
    ],
    json: JsonOption = False,
) -> None:
    """Show the public part of an agent's keys.

    All of it may be given away: the public key is how others know the agent,
    the sealing key is what they encrypt to, and its signature shows that both
    belong together.

    \b
    Examples:
      waypost keys show ~/.config/waypost/agent.web.key
      waypost keys show ./web.key --json
    """
    _require_cryptography()
    from waypost.client.identity import Identity

    _show(Identity.load(file), file, json)


def _show(identity: "Identity", file: Path, json: bool) -> None:
    import msgspec

    from waypost.cli.rendering import console

    facts = {"file": str(file), **msgspec.structs.asdict(identity.card)}
    if json:
        console.print_json(facts)
        return
    out = console.console()
    out.print(f"{identity.subject}: keys in {console.plain(str(file))}", soft_wrap=True)
    out.print(f"  public key   {identity.public_key}", soft_wrap=True)
    out.print(f"  sealing key  {identity.sealing_key}", soft_wrap=True)


def _require_cryptography() -> None:
    from importlib.util import find_spec

    if find_spec("cryptography") is None:
        typer.echo(
            "waypost: keys need cryptography, which this installation leaves out:"
            " pip install 'waypost[client]'",
            err=True,
        )
        raise typer.Exit(1)
