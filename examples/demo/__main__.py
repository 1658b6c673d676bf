"""`./run demo`: a dozen agents of different temper talk over one served relay.

Some chat, one floods, one crashes, two run in circles. Everything happens on a real relay, on a
real directory, over real connections; then the pipeline reads the journal and says what it was.
"""

import argparse
import asyncio
import logging
import tempfile
from pathlib import Path

from examples.demo.broken import die_and_come_back, fail_and_recover
from examples.demo.history import History, read_history
from examples.demo.orderly import ChattyPair, broadcast, catch_up
from examples.demo.stage import Stage, open_stage
from examples.demo.telling import Outcome, console, say, scene, tell
from examples.demo.traffic import go_on
from examples.demo.unruly import (
    break_rules,
    come_without_a_key,
    fill_up,
    flood,
    run_in_circles,
    steal_a_name,
)

FATES = {"acked": "acknowledged", "pending": "waiting", "dead": "dead"}


def main() -> None:
    """Run every scene on a new directory, or on the one given."""
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="a directory to use and keep")
    parser.add_argument(
        "--keep", action="store_true", help="go on with traffic for the dashboard, until Ctrl-C"
    )
    options = parser.parse_args()
    data_dir = options.data_dir or Path(tempfile.mkdtemp(prefix="waypost-demo-"))
    for name in ("waypost", "uvicorn", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the failures are on purpose
    try:
        asyncio.run(perform(data_dir.resolve(), keep=options.keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(f"\nEnded. The relay's directory is kept: [bold]{data_dir}[/bold]")


async def perform(data_dir: Path, *, keep: bool) -> None:
    """All of it, from the first connection to the last line."""
    async with open_stage(data_dir) as stage:
        console.print(f"Dashboard       [bold]{stage.url}/[/bold]", soft_wrap=True)
        console.print(f"Operator token  {stage.operator_token}", soft_wrap=True)
        outcomes, loop_id = await play(stage)
        scene("The journal becomes tables, a report, and answers")
        say("Spark reads it while the relay runs; that takes half a minute or more …")
        history = await read_history(data_dir, stage.confirmed)
        say(f"{history.events:,} events are {history.decided:,} decisions about messages")
        conclude(stage, outcomes, history)
        where_to_look(data_dir, loop_id, history)
        if keep:
            console.print(f"\nTraffic goes on: watch [bold]{stage.url}/[/bold]. Ctrl-C ends it.")
            await go_on(stage)


async def play(stage: Stage) -> tuple[list[Outcome], str]:
    """Every scene, one after another, while two agents talk; and the message that ended a loop."""
    pair = ChattyPair(stage)
    talking = asyncio.create_task(pair.talk())
    try:
        outcomes = [await broadcast(stage), await catch_up(stage), await die_and_come_back(stage)]
        circles, loop_id = await run_in_circles(stage)
        outcomes += [
            circles,
            await flood(stage),
            await fill_up(stage),
            await come_without_a_key(stage),
            await break_rules(stage),
            await steal_a_name(stage),
            await fail_and_recover(stage),
        ]
    finally:
        talking.cancel()
        await asyncio.wait([talking])
    return [pair.outcome(), *outcomes], loop_id


def conclude(stage: Stage, outcomes: list[Outcome], history: History) -> None:
    """The point of it all, on one screen."""
    scene("What was tried, and what the relay did")
    tell(outcomes)
    confirmed, found = sum(stage.confirmed.values()), history.found
    fates = ", ".join(f"{history.states[one]:,} {word}" for one, word in FATES.items())
    lost = "Nothing is lost" if found == confirmed else "MESSAGES ARE LOST"
    console.print()
    say(f"{lost}: {confirmed:,} confirmed to senders, {found:,} found ({fates}).")
    say(
        f"Decided again by Spark: {history.differences} of {history.decided:,} differ;"
        f" were the limit 50 a minute, {history.differences_if_stricter} would."
    )


def where_to_look(data_dir: Path, loop_id: str, history: History) -> None:
    """What is left to look at."""
    scene("What is left to look at")
    say(history.report)
    for command in ("stats", "dead-letters list --group", f"explain {loop_id}"):
        say(f"./run waypost {command} --data-dir {data_dir}")


if __name__ == "__main__":
    main()
