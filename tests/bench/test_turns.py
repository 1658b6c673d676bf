"""Contestants take turns, run by run."""

from bench.turns import TimedOperation, Turns


def contestant(name: str, seconds_each: float, calls: list[tuple[str, int]]) -> TimedOperation:
    """Return an operation that takes `seconds_each` for a message, without waiting."""

    async def operation(count: int, in_flight: int) -> float:
        calls.append((name, count))
        return count * seconds_each

    return operation


async def test_every_round_begins_with_the_next_contestant() -> None:
    calls: list[tuple[str, int]] = []
    operations = [[contestant(name, 0.001, calls)] for name in "abc"]
    await Turns(3, 0.1, lambda _: None, 10).take("abc", operations, 1)
    assert [name for name, _ in calls] == [*"abc", *"abc", *"bca", *"cab"]


async def test_the_slowest_operation_determines_the_messages_of_a_run() -> None:
    calls: list[tuple[str, int]] = []
    operations = [[contestant("publish", 0.001, calls), contestant("consume", 0.01, calls)]]
    await Turns(1, 1.0, lambda _: None, 50).take(["a"], operations, 10)
    assert calls[2:] == [("publish", 100), ("consume", 100)]


async def test_rates_are_per_second_by_contestant_operation_and_run() -> None:
    operations = [[contestant("a", 0.001, [])], [contestant("b", 0.01, [])]]
    rates = await Turns(2, 0.5, lambda _: None, 10).take("ab", operations, 1)
    assert [[round(rate) for rate in own] for [own] in rates] == [[1000, 1000], [100, 100]]
