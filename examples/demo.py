"""`./run demo`: what Waypost does for agents, in one screen and a few seconds.

Everything below happens in a real relay on a real directory, which is kept: look at it with
`./run waypost stats --data-dir DIR`.
"""

import argparse
import asyncio
import logging
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from waypost import CircuitBreakerConfig, Envelope, PublishResult, Reason, Relay, Settings
from waypost.cli.commands.pipeline.running import running
from waypost.pipeline.build import build
from waypost.pipeline.ingest import ingest
from waypost.pipeline.journals import parse_places
from waypost.pipeline.lake.lake import open_lake
from waypost.pipeline.replay.backtest import backtest
from waypost.pipeline.reports.report import write_report
from waypost.pipeline.start.session import SparkChoice

COOLDOWN_MS = 1_000
FLOOD = 500
STRICTER = b'{"reliability": {"rateLimit": {"maxPerWindow": 50}}}'

console = Console(highlight=False, soft_wrap=True)


def main() -> None:
    """Run every scene on a new directory, or on the one given."""
    parser = argparse.ArgumentParser(prog="./run demo", description=__doc__)
    parser.add_argument("--data-dir", type=Path, help="a directory to use and keep")
    options = parser.parse_args()
    data_dir = options.data_dir or Path(tempfile.mkdtemp(prefix="waypost-demo-"))
    logging.getLogger("waypost").setLevel(logging.CRITICAL)  # the failures below are on purpose
    asyncio.run(play(data_dir))
    tell_history(data_dir)


async def play(data_dir: Path) -> None:
    """All scenes, one after another, in one relay."""
    settings = Settings(circuit_breaker=CircuitBreakerConfig(cooldown_ms=COOLDOWN_MS))
    async with Relay(data_dir, settings=settings) as relay:
        await talk(relay)
        loop_id = await run_in_circles(relay)
        await flood(relay)
        await fail_and_recover(relay)
        await catch_up(relay)
        await look_at_dead_letters(relay, loop_id)
        summarise(relay)
    console.print(f"\nThe relay's directory is kept: [bold]{data_dir}[/bold]")
    for command in ("stats", "dead-letters list --group", f"explain {loop_id}"):
        console.print(f"  ./run waypost {command} --data-dir {data_dir}")


def tell_history(data_dir: Path) -> None:
    """What just happened, as tables, a page, and an answer to "what if"."""
    scene("The journal becomes tables, a report, and answers")
    lake_dir = data_dir / "lake"
    with running(SparkChoice()) as job:
        with job.step("building tables from the journal"):
            lake = open_lake(job.spark, str(lake_dir), create=True)
            ingested = ingest(lake, parse_places([str(data_dir)]))
            build(lake)
        with job.step("writing the report"):
            report = write_report(lake, lake_dir / "report.html")
        with job.step("replaying history"):
            same = backtest(lake)
            stricter = backtest(lake, STRICTER)
    console.print(f"  {ingested.events:,} events in the journal. {report.headline}")
    console.print(
        f"  decided again under the same settings: [bold]{same.differences}[/bold] of"
        f" {same.messages:,} differ; with {STRICTER.decode()}:"
        f" [bold]{stricter.differences}[/bold]"
    )
    console.print(f"\nThe report: [bold]{report.path}[/bold]")
    console.print(f"  ./run waypost pipeline report --lake {lake_dir}")


async def talk(relay: Relay) -> None:
    """Two agents, a question and an answer."""
    scene("Two agents talk")

    async def translate(question: Envelope) -> None:
        words = {"good morning": "buenos días"}
        answer = {"text": words[question.payload["text"]]}
        assert question.reply_to is not None
        await relay.publish(question.reply_to, answer, sender="agent.translator", parent=question)

    relay.register_endpoint("agent.translator")
    relay.subscribe("agent.translator", translate)
    say("agent.guide", "agent.translator", "good morning?")
    reply = await relay.request("agent.translator", {"text": "good morning"}, sender="agent.guide")
    say(reply.sender, "agent.guide", reply.payload["text"])


async def run_in_circles(relay: Relay) -> str:
    """Two agents that answer each other for ever, were it not for the budget."""
    scene("A loop is stopped by its budget")
    stopped: asyncio.Future[tuple[str, str]] = asyncio.get_running_loop().create_future()

    def pass_on(to: str, name: str) -> Callable[[Envelope], Awaitable[None]]:
        async def handler(envelope: Envelope) -> None:
            hop = envelope.budget.hop_count
            say(name, to, f"your turn (hop {hop})")
            result = await relay.publish(to, "your turn", sender=name, parent=envelope)
            if result.rejected:
                stopped.set_result((result.message_id, result.rejected[0].detail))

        return handler

    for name, other in (("agent.ping", "agent.pong"), ("agent.pong", "agent.ping")):
        relay.register_endpoint(name)
        relay.subscribe(name, pass_on(other, name))
    await relay.publish("agent.ping", "your turn", sender="agent.guide")
    message_id, why = await stopped
    console.print(f"  [red]stopped[/red]: {why}")
    return message_id


async def flood(relay: Relay) -> None:
    """One agent sends far more than its share."""
    scene("A flood is stopped by its limit")
    relay.register_endpoint("agent.victim")
    results = [
        await relay.publish("agent.victim", number, sender="agent.flooder")
        for number in range(FLOOD)
    ]
    outcome = Counter(_word(result) for result in results)
    refused = next(result for result in results if result.rejected)
    counts = ", ".join(f"{number} {word}" for word, number in outcome.items())
    console.print(f"  agent.flooder published {FLOOD} times: {counts}")
    console.print(
        f"  [red]{refused.rejected[0].detail}[/red]; it may try again in"
        f" {refused.retry_after_ms / 1000:.0f} s"
    )
    calm = await relay.publish("agent.victim", "hello", sender="agent.guide")
    console.print(f"  meanwhile agent.guide gets through: {_word(calm)}")


async def fail_and_recover(relay: Relay) -> None:
    """A handler that fails opens its breaker; when it works again, the breaker closes."""
    scene("A failing handler opens its circuit breaker, and recovers")
    broken = True

    def charge(envelope: Envelope) -> None:
        if broken:
            raise ConnectionError("payment service is away")

    relay.register_endpoint("agent.billing")
    relay.subscribe("agent.billing", charge)

    async def order(number: int) -> None:
        result = await relay.publish("agent.billing", {"order": number}, sender="agent.shop")
        await relay.idle()
        fate = "delivered, handler failed" if broken and not result.rejected else _word(result)
        console.print(f"  order {number:2}: {fate:26} breaker {_breaker(relay)}")

    for number in range(1, 8):
        await order(number)
    broken = False
    console.print(f"  … the service is repaired, {COOLDOWN_MS / 1000:.0f} s later …")
    await asyncio.sleep(COOLDOWN_MS / 1000)
    for number in range(8, 11):
        await order(number)


async def catch_up(relay: Relay) -> None:
    """Mail waits for an agent that is away, in order."""
    scene("Mail waits for an agent that is away")
    relay.register_endpoint("agent.night")
    for number in range(1, 4):
        await relay.publish("agent.night", f"note {number}", sender="agent.day")
    leased = await relay.lease("agent.night")
    console.print(f"  agent.night comes back and finds {[one.payload for one in leased]}")
    await relay.ack("agent.night", [one.id for one in leased])


async def look_at_dead_letters(relay: Relay, loop_id: str) -> None:
    """What could not be delivered is kept with its reason, and every message has a story."""
    scene("What could not be delivered is kept, with its reason")
    letters = Table("endpoint", "reason", "count")
    for group in await relay.dead_letter_groups():
        letters.add_row(group.endpoint, group.reason, str(group.count))
    console.print(letters)
    scene("The story of the message that ended the loop")
    story = await relay.explain(loop_id)
    for step in story.steps:
        console.print(f"  {step.kind:9} {step.text}")


def summarise(relay: Relay) -> None:
    """The relay's own numbers."""
    scene("In numbers")
    metrics = relay.metrics()
    for title, counts in (("happened", metrics.events), ("refused", metrics.rejected)):
        console.print(f"  {title}: {', '.join(f'{n} {what}' for what, n in counts.items())}")
    console.print(f"  {metrics.seq} journal events in {metrics.commits} commits")


def scene(title: str) -> None:
    """Begin a scene."""
    console.rule(f"[bold]{title}", align="left")


def say(sender: str, to: str, text: str) -> None:
    """Show one message."""
    console.print(f"  [cyan]{sender}[/cyan] → [cyan]{to}[/cyan]: {text}")


def _word(result: PublishResult) -> str:
    if not result.rejected:
        return "delivered"
    return {Reason.CIRCUIT_OPEN: "refused, circuit open"}.get(
        result.rejected[0].reason, f"refused, {result.rejected[0].reason}"
    )


def _breaker(relay: Relay) -> str:
    state = relay.metrics().breakers.get("agent.billing")
    return "CLOSED" if state is None else state.state


if __name__ == "__main__":
    main()
