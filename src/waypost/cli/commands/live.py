"""`top`, `tail` and `ping`: watch a relay."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated

import typer

from waypost.cli.options import (
    JsonOption,
    RelayChoice,
    with_agent_options,
    with_data_dir_options,
    with_relay_options,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from waypost.cli.results import StatsResult

PING_COUNT = 5
TAIL_EVERY_S = 0.2

Refreshes = Annotated[
    int | None,
    typer.Option("--count", "-n", metavar="N", min=1, help="End after N; default never."),
]


@with_relay_options
def top(
    choice: RelayChoice,
    every: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.1, max=3600, help="Time between.")
    ] = 2.0,
    count: Refreshes = None,
) -> None:
    """Watch a relay: what to look at, rates, and the fullest mailboxes.

    On a terminal the screen is refreshed in place; q or Ctrl-C ends it. Otherwise
    each refresh is one line. On a served relay this needs the operator's token.

    \b
    Example:
      waypost top --url http://127.0.0.1:7171
    """
    from waypost.cli.backend import open_backend

    read = open_backend(choice).stats
    try:
        if sys.stdout.isatty() and sys.stdin.isatty():
            _refresh_screen(read, choice.words(), every, count)
        else:
            _print_lines(read, every, count)
    except KeyboardInterrupt:
        return


def _print_lines(read: "Callable[[], StatsResult]", every: float, count: int | None) -> None:
    import time
    from datetime import UTC, datetime

    from waypost.cli.rendering import console, live

    before = None
    for number in _numbers(count):
        if number:
            time.sleep(every)
        stats = read()
        line = live.top_line(stats, live.rates_of(stats, before, every))
        typer.echo(f"{console.at(datetime.now(UTC))}  {line}")
        before = stats


def _refresh_screen(
    read: "Callable[[], StatsResult]", options: list[str], every: float, count: int | None
) -> None:
    from rich.live import Live

    from waypost.cli.rendering import console, live

    before = None
    with _single_keys(), Live(console=console.console(), screen=True, auto_refresh=False) as shown:
        for _ in _numbers(count):
            stats = read()
            rates = live.rates_of(stats, before, every)
            shown.update(live.top_screen(stats, rates, options), refresh=True)
            before = stats
            if _is_pressed("q", every):
                return


def _numbers(count: int | None) -> Iterator[int]:
    from itertools import count as count_up

    return count_up() if count is None else iter(range(count))


@contextmanager
def _single_keys() -> Iterator[None]:
    """Let keys arrive one by one, without Enter; restore the terminal at the end."""
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _is_pressed(key: str, seconds: float) -> bool:
    """Wait up to `seconds` for a key; return whether it is `key`."""
    import select

    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return bool(ready) and sys.stdin.read(1).lower() == key


@with_data_dir_options
def tail(
    choice: RelayChoice,
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="PATTERN", help="Only events of this sender or inbox."),
    ] = None,
    count: Refreshes = None,
    json: JsonOption = False,
) -> None:
    """Follow the journal: print each event when it is on disk. Ctrl-C ends it.

    A relay may be running. With --json each line is an event as in the journal,
    without its payload. Works on files, not on a URL.

    \b
    Examples:
      waypost tail --data-dir ./waypost-data
      waypost tail --agent 'agent.billing.>'
    """
    from itertools import islice

    from waypost.cli.backend import open_local
    from waypost.cli.rendering import live

    events = open_local(choice).follow(agent, TAIL_EVERY_S)
    try:
        for event in islice(events, count):
            if json:
                live.print_event(event)
            else:
                typer.echo(live.event_line(event))
    except KeyboardInterrupt:
        return


@with_agent_options
def ping(
    choice: RelayChoice,
    count: Annotated[
        int, typer.Option("--count", "-n", metavar="N", min=1, max=1000, help="Requests to send.")
    ] = PING_COUNT,
    json: JsonOption = False,
) -> None:
    """Measure the round trip to a served relay, and show its version.

    Needs no credentials. Exits with 1 and the reason if the relay does not
    answer, or answers that it cannot accept messages.

    \b
    Example:
      waypost ping --url http://127.0.0.1:7171
    """
    from waypost.cli.options import DEFAULT_URL
    from waypost.cli.remote.operating import ping_relay
    from waypost.cli.rendering import console, live

    result = ping_relay(choice.url or DEFAULT_URL, count)
    if json:
        console.print_json(result)
    else:
        typer.echo(live.ping_text(result))
