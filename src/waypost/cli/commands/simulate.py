"""`simulate`: days of traffic through a real relay, in seconds, as a journal or as a lake."""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from waypost.cli.commands.pipeline.options import ConfOption, MasterOption, with_spark_options
from waypost.cli.options import JsonOption
from waypost.policy.errors import InvalidInput

if TYPE_CHECKING:
    from waypost.pipeline.spark.session import SparkChoice
    from waypost.simulate import SimulationOptions, Summary

_BLOCK_MESSAGES_MAX = 200_000
_EVENTS_PER_MESSAGE = 2
"""A lower bound: the journal has a few more events, and is cut to the number asked for."""

Messages = Annotated[
    int | None,
    typer.Option("--messages", metavar="N", help="Number of publishes, including rejected ones."),
]
Out = Annotated[
    Path | None,
    typer.Option("--out", metavar="DIR", help="Data directory to create; must be new or empty."),
]
Agents = Annotated[int, typer.Option("--agents", metavar="N", help="Number of agents.")]
Seed = Annotated[
    int,
    typer.Option(
        "--seed", metavar="N", help="Random seed; the same seed gives the same decisions."
    ),
]
Scenario = Annotated[
    str,
    typer.Option("--scenario", metavar="NAME", help="Traffic to simulate, see above."),
]
Days = Annotated[float, typer.Option("--days", metavar="N", help="Days of virtual time to cover.")]
Relays = Annotated[
    int,
    typer.Option(
        "--relays",
        metavar="N",
        help="Split the messages over N relays, DIR/relay-1 and so on, on all cores.",
    ),
]
Events = Annotated[
    int | None,
    typer.Option(
        "--events",
        metavar="N",
        help="Fill a lake with N events, repeating the journal as other relays as needed.",
        rich_help_panel="Directly into a lake",
    ),
]
Lake = Annotated[
    str | None,
    typer.Option(
        "--lake",
        metavar="DIR",
        help="Lake to fill with the events of --events.",
        rich_help_panel="Directly into a lake",
    ),
]


def simulate(  # noqa: PLR0913 - one parameter per option
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
    """Create a data directory with the journal of a busy relay.

    Agents talk, broadcast, flood, fall behind, crash, loop, go offline and come
    back, on a virtual clock, through the same relay that 'waypost serve' runs.
    The journal is sealed at the end, ready for 'waypost pipeline run'. All other
    commands work on DIR, too.

    With --events and --lake, the journal goes into a lake at once, and is
    repeated there as the journals of other relays on other days, until there
    are N events: millions in minutes. 'waypost pipeline build' then builds the
    tables.

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

    _check_combination(messages, out, relays, events, lake)
    given: dict[str, Any] = {"agents": agents, "seed": seed, "scenario": scenario, "days": days}
    if messages is not None and out is not None and events is None:
        _run_and_show(SimulationOptions(messages=messages, out=out, **given), relays, json)
        return
    with TemporaryDirectory(prefix="waypost-") as scratch:
        block = messages if messages is not None else _block_messages(events or 0)
        options = SimulationOptions(messages=block, out=out or Path(scratch) / "traffic", **given)
        fill = {"options": options, "events": events, "lake": lake, "json": json}
        _fill(master=master, remote=None, conf=conf, spark_log=False, no_server=True, **fill)


def _check_combination(
    messages: int | None, out: Path | None, relays: int, events: int | None, lake: str | None
) -> None:
    if (events is None) != (lake is None):
        raise InvalidInput("--events and --lake go together: give both, or neither")
    if events is None and (messages is None or out is None):
        raise InvalidInput("give --messages N and --out DIR, or --events N and --lake DIR")
    if events is not None and events < 1:
        raise InvalidInput(f"events must be 1 or more, not {events}")
    if events is not None and relays != 1:
        raise InvalidInput("--events creates as many relays as needed: leave out --relays")


def _block_messages(events: int) -> int:
    return max(1, min(events // _EVENTS_PER_MESSAGE, _BLOCK_MESSAGES_MAX))


@with_spark_options
def _fill(
    *, options: "SimulationOptions", events: int, lake: str, json: bool, spark: "SparkChoice"
) -> None:
    """Simulate a relay, then repeat its journal in a lake."""
    from waypost.cli.commands.pipeline.job import start_job
    from waypost.cli.rendering import console, simulation
    from waypost.pipeline.jobs.synthesize import synthesize
    from waypost.pipeline.lake.lake import open_lake

    summary = _run(options)
    journal = str(options.out.absolute() / "journal")
    with start_job(spark) as job, job.step("filling the lake"):
        opened = open_lake(job.spark, lake, create=True)
        added = synthesize(opened, journal, events, f"sim-{options.seed}")
    if json:
        console.print_json({"simulated": summary, "lake": added})
    else:
        simulation.show_synthesized(summary, added, lake)


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
        summaries = simulate_parallel(options, relays, on_progress)
    if json:
        console.print_json(summaries)
    else:
        simulation.show_parallel(summaries)
