"""`simulate`: days of traffic through a real relay, in seconds."""

from pathlib import Path
from typing import Annotated

import typer

from waypost.cli.options import JsonOption

Messages = Annotated[
    int,
    typer.Option("--messages", metavar="N", help="How many publishes, refused ones included."),
]
Out = Annotated[
    Path,
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


def simulate(  # noqa: PLR0913 - each is something one may choose
    *,
    messages: Messages,
    out: Out,
    agents: Agents = 40,
    seed: Seed = 0,
    scenario: Scenario = "mixed",
    days: Days = 2.0,
    json: JsonOption = False,
) -> None:
    """Make a data directory with the journal of a busy relay.

    Agents talk, broadcast, flood, fall behind, crash, loop, go away and come
    back, on a clock of their own, through the relay that 'waypost serve' runs.
    The journal is sealed at the end, ready for 'waypost pipeline run'. All other
    commands work on DIR, too.

    Scenarios: mixed (all of the following), conversations, flood,
    slow-consumer, loops, absences, crashes, broadcasts, overflow.

    \b
    Examples:
      waypost simulate --messages 100000 --agents 200 --seed 7 --out ./traffic
      waypost simulate --messages 5000 --scenario crashes --out ./crashes
      waypost stats --data-dir ./traffic
    """
    from waypost.cli.rendering import console, simulation
    from waypost.simulate import SimulationOptions
    from waypost.simulate import simulate as run

    options = SimulationOptions(
        messages=messages, out=out, agents=agents, seed=seed, scenario=scenario, days=days
    )
    with simulation.messages_bar() as on_progress:
        summary = run(options, on_progress)
    if json:
        console.print_json(summary)
    else:
        simulation.show_summary(summary)
