"""Every setting has an experiment that fails if the setting is ignored."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.relay.experiments import EXPERIMENTS, Bench
from tests.relay.observing import write
from waypost import Relay, Settings
from waypost.testing import ManualClock

RELIABILITY = {"rate_limit", "circuit_breaker", "backpressure"}
FIXED = {"storage", "watch_files"}  # read once, when the relay opens

CASES = [
    pytest.param(name, value, outcome, id=f"{name}={value}")
    for name, experiment in EXPERIMENTS.items()
    for value, outcome in experiment.outcomes
]


def all_fields(settings: msgspec.Struct, prefix: str = "") -> list[str]:
    names = []
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        nested = isinstance(value, msgspec.Struct)
        names += all_fields(value, f"{prefix}{name}.") if nested else [prefix + name]
    return names


def with_value(settings: Any, path: str, value: object) -> Any:
    name, _, rest = path.partition(".")
    inner = with_value(getattr(settings, name), rest, value) if rest else value
    return msgspec.structs.replace(settings, **{name: inner})


def quiet(name: str) -> Settings:
    """Return the other settings of an experiment, without watching files."""
    return msgspec.structs.replace(EXPERIMENTS[name].given, watch_files=False)


def camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.title() for word in rest)


def document(path: str, value: object) -> dict[str, Any]:
    """Return the setting as it is spelled in `config.json`."""
    value = msgspec.to_builtins(value)
    *groups, _ = path.split(".")
    for name in reversed(path.split(".")):
        value = {camel(name): value}
    assert isinstance(value, dict)
    return {"reliability": value} if groups and groups[0] in RELIABILITY else value


def test_there_is_an_experiment_for_every_setting() -> None:
    # Names and webhooks are those of a served relay: tests/server/test_names.py and webhooks/.
    served = ("names.", "webhooks.")
    fields = [one for one in all_fields(Settings()) if not one.startswith(served)]
    assert sorted(EXPERIMENTS) == sorted(fields)


def test_every_experiment_can_tell_two_values_apart() -> None:
    for experiment in EXPERIMENTS.values():
        outcomes = [outcome for _, outcome in experiment.outcomes]
        assert len({repr(outcome) for outcome in outcomes}) == len(outcomes) > 1


async def outcome_of(
    name: str, relay: Relay, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> object:
    relay.register_endpoint("agent.a")
    relay.register_endpoint("agent.b")
    bench = Bench(relay, clock, relay._runtime.data.root, monkeypatch)
    return await EXPERIMENTS[name].run(bench)


@pytest.mark.parametrize(("name", "value", "outcome"), CASES)
async def test_a_setting_given_to_the_relay_is_in_force(
    name: str, value: object, outcome: object, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    settings = with_value(quiet(name), name, value)
    async with Relay(data, settings=settings, clock=clock) as relay:
        assert await outcome_of(name, relay, clock, monkeypatch) == outcome


@pytest.mark.parametrize(("name", "value", "outcome"), CASES)
async def test_a_setting_in_the_file_is_in_force(
    name: str, value: object, outcome: object, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    write(data / "config.json", document(name, value))
    async with Relay(data, settings=quiet(name), clock=clock) as relay:
        assert await outcome_of(name, relay, clock, monkeypatch) == outcome


@pytest.mark.parametrize(
    ("name", "value", "outcome"), [case for case in CASES if case.values[0] not in FIXED]
)
async def test_a_setting_changed_under_way_is_in_force(
    name: str, value: object, outcome: object, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with Relay(data, settings=quiet(name), clock=clock) as relay:
        write(data / "config.json", document(name, value))
        relay._runtime.settings.reload()
        assert await outcome_of(name, relay, clock, monkeypatch) == outcome
