"""`waypost pipeline`: turn journals into tables, reports and backtests, with Spark."""

from waypost.cli.commands.pipeline import backtest, tables, transfer, warm
from waypost.cli.commands.pipeline.options import with_spark_options
from waypost.cli.help import CommandGroup

commands = CommandGroup(help="Turn journals into tables, reports and backtests, with Spark.")

_TABLES, _BACKTEST, _TRANSFER = "From journals to tables", "What if", "Import and restore"
_START = "A quick start"
commands.command(rich_help_panel=_TABLES)(with_spark_options(tables.run))
commands.command(rich_help_panel=_TABLES)(with_spark_options(tables.ingest))
commands.command(rich_help_panel=_TABLES)(with_spark_options(tables.build))
commands.command(rich_help_panel=_TABLES)(with_spark_options(tables.stream))
commands.command(rich_help_panel=_TABLES)(with_spark_options(tables.report))
commands.command(rich_help_panel=_TABLES)(with_spark_options(tables.convert))
commands.command(rich_help_panel=_BACKTEST)(with_spark_options(backtest.backtest))
commands.command(rich_help_panel=_BACKTEST)(with_spark_options(backtest.recommend))
commands.command("import-trace", rich_help_panel=_TRANSFER)(
    with_spark_options(transfer.import_trace)
)
commands.command(rich_help_panel=_TRANSFER)(with_spark_options(transfer.restore))
commands.command(rich_help_panel=_START)(warm.warm)
commands.command(rich_help_panel=_START)(warm.serve)
