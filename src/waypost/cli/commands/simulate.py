"""`simulate`: days of traffic through a real relay, in seconds; in a lake, as often as asked."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waypost.cli.commands.pipeline.options import ConfOption, MasterOption, on_spark
from waypost.cli.options import JsonOption
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice
    from waypost.simulate import SimulationOptions, Summary

_BLOCK_MESSAGES_MAX = 200_000
_EVENTS_PER_MESSAGE = 2
"""There are a few more, so a journal of so many messages is long enough to be cut."""

Messages = Annotated[
    int | None,
    typer.Option("--messages", metavar="N", help="How many publishes, refused ones included."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Becomes a data directory; must be empty or new."),
]
Agents = Annotated[int, typer.Option("--agents", metavar="N", help="How many agents take part.")]
Seed = Annotated[
    int, typer.Option("--seed", metavar="N", help="The same seed gives the same decisions.")
]
Scenario = Annotated[
    str,
    typer.Option("--scenario", metavar="NAME", help="One kind of traffic instead of all of them."),
]
Days = Annotated[
    float, typer.Option("--days", metavar="N", help="How much virtual time it is spread over.")
]
Relays = Annotated[
    int,
    typer.Option(
        "--relays",
        metavar="N",
        help="So many relays with a share each, DIR/relay-1 and so on, on all cores.",
    ),
]
Events = Annotated[
    int | None,
    typer.Option(
        "--events",
        metavar="N",
        help="Fill a lake with N events: this relay's, and of as many like it as it takes.",
        rich_help_panel="Straight into a lake",
    ),
]
Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="DIR",
        help="The lake that gets the events of --events.",
        rich_help_panel="Straight into a lake",
    ),
]


def simulate(  # noqa: PLR0913 - each is something one may choose
    *,
    messages: Messages = None,
    out: Out = None,
    agents: Agents = 40,
    seed: Seed = 0,
    scenario: Scenario = "mixed",
    days: Days = 2.0,
    relays: Relays = 1,
    events: Events = None,
    lake: Lake = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    json: JsonOption = False,
) -> None:
    """Make a data directory with the journal of a busy relay.

    Agents talk, broadcast, flood, fall behind, crash, loop, go away and come
    back, on a clock of their own, through the relay that 'waypost serve' runs.
    The journal is sealed at the end, ready for 'waypost pipeline run'. All other
    commands work on DIR, too.

    With --events and --lake, the journal goes into a lake right away, and once
    more as that of another relay on another day, until there are N events:
    millions in minutes. Then 'waypost pipeline build' makes the tables.

    Scenarios: mixed (all of the following), conversations, flood,
    slow-consumer, loops, absences, crashes, broadcasts, overflow.

    \b
    Examples:
      waypost simulate --messages 100000 --agents 200 --seed 7 --out ./traffic
      waypost simulate --messages 5000 --scenario crashes --out ./crashes
      waypost simulate --messages 1000000 --relays 4 --out ./many
      waypost simulate --events 20000000 --lake ./lake
      waypost stats --data-dir ./traffic
    """
    from waypost.simulate import SimulationOptions

    _check_together(messages, out, relays, events, lake)
    given: dict[str, Any] = {"agents": agents, "seed": seed, "scenario": scenario, "days": days}
    if messages is not None and out is not None and events is None:
        _run_and_show(SimulationOptions(messages=messages, out=out, **given), relays, json)
        return
    with TemporaryDirectory(prefix="waypost-") as scratch:
        block = messages if messages is not None else _block_messages(events or 0)
        options = SimulationOptions(messages=block, out=out or Path(scratch) / "traffic", **given)
        fill = {"options": options, "events": events, "lake": lake, "json": json}
        _fill(master=master, remote=None, conf=conf, spark_log=False, **fill)


def _check_together(
    messages: int | None, out: Path | None, relays: int, events: int | None, lake: str | None
) -> None:
    if (events is None) != (lake is None):
        raise InvalidInput("--events and --lake go together: how many, and where to")
    if events is None and (messages is None or out is None):
        raise InvalidInput("give --messages N and --out DIR, or --events N and --lake DIR")
    if events is not None and events < 1:
        raise InvalidInput(f"events must be 1 or more, not {events}")
    if events is not None and relays != 1:
        raise InvalidInput("--events makes as many relays as it takes: leave out --relays")


def _block_messages(events: int) -> int:
    return max(1, min(events // _EVENTS_PER_MESSAGE, _BLOCK_MESSAGES_MAX))


@on_spark
def _fill(
    *, options: "SimulationOptions", events: int, lake: str, json: bool, spark: "SparkChoice"
) -> None:
    """Simulate a relay, then repeat its journal in a lake."""
    from waypost.cli.commands.pipeline.running import running
    from waypost.cli.rendering import console, simulation
    from waypost.pipeline.jobs.synthesize import synthesize
    from waypost.pipeline.lake.lake import open_lake

    summary = _run(options)
    journal = str(options.out.absolute() / "journal")
    with running(spark) as job, job.step("filling the lake"):
        opened = open_lake(job.spark, lake, create=True)
        repeated = synthesize(opened, journal, events, f"sim-{options.seed}")
    if json:
        console.print_json({"simulated": summary, "lake": repeated})
    else:
        simulation.show_repeated(summary, repeated, lake)


def _run(options: "SimulationOptions") -> "Summary":
    from waypost.cli.rendering import simulation
    from waypost.simulate import simulate as run

    with simulation.messages_bar() as on_progress:
        return run(options, on_progress)


def _run_and_show(options: "SimulationOptions", relays: int, json: bool) -> None:
    from waypost.cli.rendering import console, simulation
    from waypost.simulate import simulate_parallel

    if relays == 1:
        summary = _run(options)
        if json:
            console.print_json(summary)
        else:
            simulation.show_summary(summary)
        return
    with simulation.messages_bar() as on_progress:
        several = simulate_parallel(options, relays, on_progress)
    if json:
        console.print_json(several)
    else:
        simulation.show_several(several)
