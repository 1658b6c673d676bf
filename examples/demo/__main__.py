"""`./run demo`: two dozen agents, some of them faulty or hostile, talk over one served relay.

Some chat, one floods, one crashes, two loop. It is a real relay with a real data directory and real
connections. Afterwards the pipeline reads the journal, writes a report and replays every decision.
"""

import argparse
import asyncio
import logging
import sys
import tempfile
from pathlib import Path

from examples.demo.demo_relay import DemoRelay, open_demo_relay
from examples.demo.failing import fail_and_recover, kill_and_reconnect
from examples.demo.history import History, start_history
from examples.demo.misbehaving import (
    claim_a_taken_subject,
    fill_mailbox,
    flood,
    loop,
    send_anonymously,
    send_despite_rule,
)
from examples.demo.output import Outcome, console, print_line, print_outcomes, print_title
from examples.demo.traffic import run_endlessly
from examples.demo.well_behaved import ChattyPair, broadcast, write_to_offline_agent

STATES = {"acked": "acknowledged", "pending": "pending", "dead": "dead"}


def main() -> None:
    """Run every scene on a new data directory, or on the one given."""
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="data directory to use and keep")
    parser.add_argument(
        "--keep", action="store_true", help="continue with traffic for the dashboard, until Ctrl-C"
    )
    parser.add_argument(
        "--cluster", action="store_true", help="three relays on NATS, one of which is killed"
    )
    options = parser.parse_args()
    if options.cluster:
        if options.keep or options.data_dir:
            parser.error("--cluster keeps nothing: it goes without --keep and --data-dir")
        sys.exit(_run_cluster_demo())
    data_dir = options.data_dir or Path(tempfile.mkdtemp(prefix="waypost-demo-"))
    for name in ("waypost", "uvicorn", "py4j"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the failures are on purpose
    try:
        asyncio.run(run_demo(data_dir.resolve(), keep=options.keep))
    except (KeyboardInterrupt, asyncio.CancelledError):
        console.print(f"\nStopped. The data directory is kept: [bold]{data_dir}[/bold]")


def _run_cluster_demo() -> int:
    from examples.demo.cluster import run_cluster_demo

    logging.getLogger("waypost").setLevel(logging.CRITICAL)  # a node is killed on purpose
    try:
        return 0 if asyncio.run(run_cluster_demo()) else 1
    except KeyboardInterrupt:
        console.print("\nStopped. Nothing is kept.")
        return 0


async def run_demo(data_dir: Path, *, keep: bool) -> None:
    """Run the scenes, then the pipeline, and print the results."""
    async with open_demo_relay(data_dir) as demo, start_history(data_dir) as pipeline:
        console.print(f"Dashboard       [bold]{demo.url}/[/bold]", soft_wrap=True)
        console.print(f"Operator token  {demo.operator_token}", soft_wrap=True)
        outcomes, loop_id = await run_scenes(demo)
        print_title("The pipeline turns the journal into tables, a report and a replay")
        print_line("Spark reads it while the relay runs; this takes some seconds …")
        history = await pipeline.read(demo.confirmed)
        print_line(f"{history.events:,} events, {history.decided:,} decisions about messages")
        print_conclusion(demo, outcomes, history)
        print_next_steps(data_dir, loop_id, history)
        if keep:
            console.print(f"\nTraffic continues: watch [bold]{demo.url}/[/bold]. Stop with Ctrl-C.")
            await run_endlessly(demo)


async def run_scenes(demo: DemoRelay) -> tuple[list[Outcome], str]:
    """Run the scenes one after another while two agents talk.

    Returns the outcomes, and the id of the message that was stopped in a loop.
    """
    pair = ChattyPair(demo)
    talking = asyncio.create_task(pair.talk())
    try:
        outcomes = [
            await broadcast(demo),
            await write_to_offline_agent(demo),
            await kill_and_reconnect(demo),
        ]
        looped, loop_id = await loop(demo)
        outcomes += [
            looped,
            await flood(demo),
            await fill_mailbox(demo),
            await send_anonymously(demo),
            await send_despite_rule(demo),
            await claim_a_taken_subject(demo),
            await fail_and_recover(demo),
        ]
    finally:
        talking.cancel()
        await asyncio.wait([talking])
    return [pair.outcome(), *outcomes], loop_id


def print_conclusion(demo: DemoRelay, outcomes: list[Outcome], history: History) -> None:
    """Print all outcomes, and whether confirmed messages or decisions were lost or differ."""
    print_title("What was tried, and what the relay did")
    print_outcomes(outcomes)
    confirmed, found = sum(demo.confirmed.values()), history.found
    states = ", ".join(f"{history.states[one]:,} {word}" for one, word in STATES.items())
    verdict = "Nothing is lost" if found == confirmed else "MESSAGES ARE LOST"
    console.print()
    print_line(f"{verdict}: {confirmed:,} confirmed to senders, {found:,} found ({states}).")
    print_line(
        f"Replayed by Spark: {history.differences} of {history.decided:,} decisions differ;"
        f" with a limit of 50 a minute, {history.differences_if_stricter} would."
    )


def print_next_steps(data_dir: Path, loop_id: str, history: History) -> None:
    """Print the path of the report, and commands to try."""
    print_title("Next steps")
    print_line(history.report)
    for command in ("stats", "dead-letters list --group", f"explain {loop_id}"):
        print_line(f"./run waypost {command} --data-dir {data_dir}")


if __name__ == "__main__":
    main()
