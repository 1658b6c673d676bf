"""The `waypost` command: its verbs, and how it fails.

Exit codes: 0 done, 1 it cannot be done or something is wrong, 2 the command or its input is
wrong, 3 a message was refused or nobody was there. Every error made on purpose is one sentence
on stderr; anything else keeps its traceback, because it is a bug.
"""

import logging
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from waypost.cli.commands import (
    config,
    conversation,
    dead_letters,
    keys,
    mailboxes,
    mcp,
    messages,
    pipeline,
    rules,
    serve,
    simulate,
    upkeep,
)
from waypost.policy.errors import InvalidInput, WaypostError

_OF_THE_CLIENT = ("cryptography", "websockets")


class _Verbs(TyperGroup):
    """Turns errors made on purpose into one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen verb."""
        try:
            return super().invoke(ctx)
        except WaypostError as problem:
            typer.echo(f"waypost: {problem}", err=True)
            raise typer.Exit(2 if isinstance(problem, InvalidInput) else 1) from None
        except PermissionError as problem:
            typer.echo(f"waypost: no permission to use {problem.filename}", err=True)
            raise typer.Exit(1) from None
        except ModuleNotFoundError as problem:
            library = (problem.name or "").partition(".")[0]
            if library not in _OF_THE_CLIENT:
                raise
            typer.echo(
                f"waypost: speaking as an agent needs {library}, which this installation leaves"
                " out: pip install 'waypost[cli,client]'",
                err=True,
            )
            raise typer.Exit(1) from None


app = typer.Typer(
    cls=_Verbs,
    help=(
        "A message relay for software agents. Verbs work on the data directory of a relay, or with"
        " --url (or WAYPOST_URL) on a relay that is served."
    ),
    epilog='Start with: waypost send agent.hello \'{"text": "hi"}\' --sender agent.me --register',
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import PackageNotFoundError, version

        try:
            typer.echo(version("waypost"))
        except PackageNotFoundError:
            typer.echo("not installed as a package")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    # Whatever concerns the caller is in the result or in an error; the log would say it twice.
    logging.getLogger("waypost").addHandler(logging.NullHandler())


app.command(rich_help_panel="Messages")(messages.send)
app.command(rich_help_panel="Messages")(messages.inbox)
app.command(rich_help_panel="Messages")(messages.explain)
app.command(rich_help_panel="Messages")(conversation.listen)
app.command(rich_help_panel="Messages")(conversation.request)
app.command(rich_help_panel="Messages")(mcp.mcp)
app.add_typer(dead_letters.verbs, name="dead-letters", rich_help_panel="Messages")
app.command(rich_help_panel="The relay")(serve.serve)
app.add_typer(keys.verbs, name="keys", rich_help_panel="The relay")
app.command(rich_help_panel="The relay")(mailboxes.endpoints)
app.command(rich_help_panel="The relay")(mailboxes.stats)
app.add_typer(config.verbs, name="config", rich_help_panel="The relay")
app.add_typer(rules.verbs, name="rules", rich_help_panel="The relay")
app.add_typer(pipeline.verbs, name="pipeline", rich_help_panel="History")
app.command(rich_help_panel="History")(simulate.simulate)
app.command(rich_help_panel="Upkeep")(upkeep.verify)
app.command(rich_help_panel="Upkeep")(upkeep.rebuild)
