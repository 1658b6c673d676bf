"""The `waypost` command: its subcommands, errors and exit codes.

Exit codes: 0 success; 1 failure, or a problem was found; 2 invalid command or input; 3 a message
was rejected or no endpoint matched; 4 the journal could not be written, start the relay again. A
`WaypostError` is one sentence on stderr; any other exception is a bug and keeps its traceback.
"""

import logging
from typing import Annotated, Any

import typer

from waypost.cli.commands import (
    agents,
    breakers,
    cluster,
    config,
    context,
    dead_letters,
    hook,
    keys,
    listen,
    live,
    maintenance,
    mcp,
    messages,
    names,
    pipeline,
    rules,
    scheduled,
    serve,
    simulate,
    webhooks,
)
from waypost.cli.help import CommandGroup, Group
from waypost.policy.errors import InvalidInput, WaypostError
from waypost.wire.printable import printable

_CLIENT_MODULES = ("cryptography", "websockets")


class _Commands(Group):
    """Turns a `WaypostError` into one sentence and an exit code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except WaypostError as problem:
            _print_error(str(problem))
            raise typer.Exit(_exit_code(problem)) from None
        except PermissionError as problem:
            _print_error(f"permission denied: {problem.filename}")
            raise typer.Exit(1) from None
        except ModuleNotFoundError as problem:
            library = (problem.name or "").partition(".")[0]
            if library not in _CLIENT_MODULES:
                raise
            _print_error(
                f"acting as an agent needs {library}, which is not installed:"
                " pip install 'waypost[cli,client]'"
            )
            raise typer.Exit(1) from None


def _print_error(text: str) -> None:
    """Print one line on stderr, whatever a relay or a file put into `text`."""
    typer.echo(f"waypost: {printable(text)}", err=True)


def _exit_code(problem: WaypostError) -> int:
    from waypost.relay.errors import RelayStopped

    if isinstance(problem, RelayStopped):
        return 4
    return 2 if isinstance(problem, InvalidInput) else 1


app = CommandGroup(
    cls=_Commands,
    help=(
        "A message relay for software agents. Commands work on a relay's data directory"
        " (--data-dir), or on a served relay (--url)."
    ),
    epilog='Start with: waypost send agent.hello \'{"text": "hi"}\' --sender agent.me --register',
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from waypost.version import installed_version

        typer.echo(installed_version())
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
    # Results and errors are printed already; the log would repeat them.
    logging.getLogger("waypost").addHandler(logging.NullHandler())


app.command(rich_help_panel="Messages")(messages.send)
app.command(rich_help_panel="Messages")(messages.inbox)
app.command(rich_help_panel="Messages")(messages.explain)
app.command(rich_help_panel="Messages")(messages.thread)
app.command(rich_help_panel="Messages", help=listen.HELP)(listen.listen)
app.command(rich_help_panel="Messages")(messages.request)
app.command(rich_help_panel="Messages", help=mcp.HELP)(mcp.mcp)
app.command(rich_help_panel="Messages", cls=hook.HookCommand)(hook.hook)
app.add_typer(scheduled.commands, name="scheduled", rich_help_panel="Messages")
app.add_typer(dead_letters.commands, name="dead-letters", rich_help_panel="Messages")
app.command(rich_help_panel="The relay", help=serve.HELP)(serve.serve)
app.add_typer(keys.commands, name="keys", rich_help_panel="The relay")
app.add_typer(names.commands, name="names", rich_help_panel="The relay")
app.add_typer(webhooks.commands, name="webhooks", rich_help_panel="The relay")
app.command(rich_help_panel="The relay")(maintenance.endpoints)
app.command(rich_help_panel="The relay")(maintenance.stats)
app.command(rich_help_panel="The relay")(live.top)
app.command(rich_help_panel="The relay")(live.tail)
app.command(rich_help_panel="The relay")(live.ping)
app.add_typer(context.commands, name="context", rich_help_panel="The relay")
app.add_typer(agents.commands, name="agents", rich_help_panel="The relay")
app.add_typer(breakers.commands, name="breakers", rich_help_panel="The relay")
app.add_typer(cluster.commands, name="cluster", rich_help_panel="The relay")
app.add_typer(config.commands, name="config", rich_help_panel="The relay")
app.add_typer(rules.commands, name="rules", rich_help_panel="The relay")
app.add_typer(pipeline.commands, name="pipeline", rich_help_panel="History")
app.command(rich_help_panel="History")(simulate.simulate)
app.command(rich_help_panel="Maintenance")(maintenance.verify)
app.command(rich_help_panel="Maintenance")(maintenance.rebuild)
