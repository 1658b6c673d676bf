"""`waypost pipeline`: the relay's journal becomes tables, reports and answers, with Spark."""

import typer

from waypost.cli.commands.pipeline import exchange, replays, tables
from waypost.cli.commands.pipeline.options import on_spark

verbs = typer.Typer(
    help="Turn journals into tables, reports and answers to 'what if', with Spark.",
    no_args_is_help=True,
    rich_markup_mode="rich",
)

_TABLES, _QUESTIONS, _EXCHANGE = "From journals to tables", "What if", "In and out"
verbs.command(rich_help_panel=_TABLES)(on_spark(tables.run))
verbs.command(rich_help_panel=_TABLES)(on_spark(tables.ingest))
verbs.command(rich_help_panel=_TABLES)(on_spark(tables.build))
verbs.command(rich_help_panel=_TABLES)(on_spark(tables.stream))
verbs.command(rich_help_panel=_TABLES)(on_spark(tables.report))
verbs.command(rich_help_panel=_QUESTIONS)(on_spark(replays.backtest))
verbs.command(rich_help_panel=_QUESTIONS)(on_spark(replays.recommend))
verbs.command("import-trace", rich_help_panel=_EXCHANGE)(on_spark(exchange.import_trace))
verbs.command(rich_help_panel=_EXCHANGE)(on_spark(exchange.restore))
