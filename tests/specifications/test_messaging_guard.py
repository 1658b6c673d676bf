"""The messaging guard, as an application imports it."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.specifications.served_relay import ServedRelay
from waypost import MessagingGuard, load_messaging_guard_config
from waypost.client import ClientOptions, RequestBlocked, RequestTimedOut, connect
from waypost.testing import ManualClock

RESET_MS = 30_000
WINDOW_MS = 60_000
TIMER = "waypost-guard-sweep"
PROGRAM = "from waypost import MessagingGuard; guard = MessagingGuard(); print(guard.counters())"


@pytest.fixture
def guard(clock: ManualClock) -> Iterator[MessagingGuard]:
    guard = MessagingGuard(clock=clock)
    yield guard
    guard.stop()


def fail(guard: MessagingGuard, times: int = 5, target: str = "target-1") -> None:
    for _ in range(times):
        guard.record_failure(target)


def probe(guard: MessagingGuard, *outcomes: bool) -> None:
    """Call target-1 once for each outcome, and report it."""
    for succeeded in outcomes:
        assert guard.check("sender-1", "target-1").allowed
        (guard.record_success if succeeded else guard.record_failure)("target-1")


# --- The circuit to an agent ---------------------------------------------------------------------


def test_a_new_guard_allows_a_call(guard: MessagingGuard) -> None:
    result = guard.check("sender-1", "target-1")
    assert (result.allowed, result.reason, result.retry_after_ms) == (True, None, None)


def test_the_fifth_failure_in_a_row_opens_the_circuit(guard: MessagingGuard) -> None:
    fail(guard, 4)
    guard.record_success("target-1")
    fail(guard, 4)
    assert guard.get_circuit_state("target-1") == "CLOSED"
    fail(guard, 1)
    assert guard.get_circuit_state("target-1") == "OPEN"


def test_a_failure_of_one_agent_does_not_affect_another(guard: MessagingGuard) -> None:
    fail(guard)
    assert guard.check("sender-1", "target-2").allowed
    assert guard.get_circuit_state("target-2") == "CLOSED"


@pytest.mark.parametrize("elapsed_ms", [0, 1, 29_999])
def test_an_open_circuit_rejects_every_sender_with_the_remaining_time(
    guard: MessagingGuard, clock: ManualClock, elapsed_ms: int
) -> None:
    fail(guard)
    clock.advance_ms(elapsed_ms)
    results = [guard.check(f"sender-{number}", "target-1") for number in range(3)]
    assert [one.reason for one in results] == ["CIRCUIT_OPEN"] * 3
    assert [one.retry_after_ms for one in results] == [RESET_MS - elapsed_ms] * 3


def test_after_the_timeout_one_probe_is_allowed_and_no_second(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    fail(guard)
    clock.advance_ms(RESET_MS)
    first, second = (guard.check(f"sender-{number}", "target-1") for number in range(2))
    assert (first.allowed, second.reason) == (True, "CIRCUIT_OPEN")
    assert guard.get_circuit_state("target-1") == "HALF_OPEN"


def test_two_good_probes_close_the_circuit(guard: MessagingGuard, clock: ManualClock) -> None:
    fail(guard)
    clock.advance_ms(RESET_MS)
    probe(guard, True)
    assert guard.get_circuit_state("target-1") == "HALF_OPEN"
    probe(guard, True)
    assert guard.get_circuit_state("target-1") == "CLOSED"


def test_one_failed_probe_opens_the_circuit_for_the_whole_timeout(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    fail(guard)
    clock.advance_ms(RESET_MS)
    probe(guard, True, False)
    assert guard.get_circuit_state("target-1") == "OPEN"
    assert guard.check("sender-1", "target-1").retry_after_ms == RESET_MS


def test_an_unknown_agent_is_closed_and_not_remembered(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    assert guard.get_circuit_state("never-heard-of") == "CLOSED"
    clock.advance_ms(3_600_000)
    assert guard.sweep().circuits == 0


# --- The rate of a sender ------------------------------------------------------------------------


def test_the_eleventh_call_in_a_minute_is_rejected(guard: MessagingGuard) -> None:
    results = [guard.check("sender-1", f"target-{number}") for number in range(11)]
    assert [one.allowed for one in results] == [True] * 10 + [False]
    assert results[-1].reason == "RATE_LIMITED"


def test_a_limited_sender_does_not_limit_another(guard: MessagingGuard) -> None:
    for _ in range(11):
        guard.check("sender-1", "target-1")
    assert guard.check("sender-2", "target-1").allowed


def test_the_wait_of_a_limited_sender_is_that_of_its_oldest_call(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    guard.check("sender-1", "target-1")
    clock.advance_ms(1_000)
    for _ in range(9):
        guard.check("sender-1", "target-1")
    assert guard.check("sender-1", "target-1").retry_after_ms == WINDOW_MS - 1_000
    clock.advance_ms(WINDOW_MS - 1_000)
    assert [guard.check("sender-1", "target-1").allowed for _ in range(2)] == [True, False]


def test_rejected_calls_are_not_counted(guard: MessagingGuard, clock: ManualClock) -> None:
    for _ in range(10):
        guard.check("sender-1", "target-1")
    clock.advance_ms(WINDOW_MS - 1)
    for _ in range(100):
        assert not guard.check("sender-1", "target-1").allowed
    clock.advance_ms(1)
    assert guard.check("sender-1", "target-1").allowed


def test_while_the_circuit_is_open_the_rate_is_not_checked(
    guard: MessagingGuard, clock: ManualClock
) -> None:
    fail(guard)
    assert {guard.check("sender-1", "target-1").reason for _ in range(20)} == {"CIRCUIT_OPEN"}
    assert [guard.check("sender-1", "target-2").allowed for _ in range(11)] == [True] * 10 + [False]
    assert guard.check("sender-1", "target-1").reason == "CIRCUIT_OPEN"


@given(steps_ms=st.lists(st.integers(0, 20_000), max_size=80))
def test_no_sender_ever_gets_more_calls_through_than_its_limit(steps_ms: list[int]) -> None:
    clock = ManualClock()
    guard = MessagingGuard(clock=clock)
    passed: list[int] = []
    for step_ms in steps_ms:
        clock.advance_ms(step_ms)
        now_ms = clock() // 1000
        recent = [at_ms for at_ms in passed if now_ms - at_ms < WINDOW_MS]
        assert guard.check("sender-1", "target-1").allowed == (len(recent) < 10)
        if len(recent) < 10:
            passed.append(now_ms)
    guard.stop()


# --- Log, counters, sweep ------------------------------------------------------------------------


def test_every_change_of_state_is_logged_with_the_agent_and_counted(
    guard: MessagingGuard, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="waypost.guard"):
        fail(guard)
        clock.advance_ms(RESET_MS)
        probe(guard, True, True)
    changes = [record.getMessage().partition(" (")[0] for record in caplog.records]
    assert changes == [
        "circuit to target-1: CLOSED -> OPEN",
        "circuit to target-1: OPEN -> HALF_OPEN",
        "circuit to target-1: HALF_OPEN -> CLOSED",
    ]
    assert guard.counters()["circuit_breaker_transitions"] == 3


def test_rejections_are_counted_by_their_reason(guard: MessagingGuard) -> None:
    fail(guard)
    guard.check("sender-1", "target-1")
    for _ in range(13):
        guard.check("sender-1", "target-2")
    assert guard.counters() == {
        "circuit_breaker_transitions": 1,
        "circuit_open_rejections": 1,
        "agent_rate_limit_rejections": 3,
    }


def test_senders_without_recent_calls_are_swept(guard: MessagingGuard, clock: ManualClock) -> None:
    guard.check("idle", "target-1")
    clock.advance_ms(WINDOW_MS)
    guard.check("busy", "target-1")
    assert [guard.sweep().senders for _ in range(2)] == [1, 0]


@pytest.mark.process
def test_the_timer_of_the_sweep_does_not_keep_the_process_alive() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=True
    )
    assert "circuit_breaker_transitions" in done.stdout


def test_stop_ends_the_timer_and_leaves_the_guard_working() -> None:
    before = {one.ident for one in threading.enumerate()}
    guard = MessagingGuard()
    (timer,) = [one for one in threading.enumerate() if one.ident not in before]
    assert (timer.name, timer.daemon) == (TIMER, True)
    guard.stop()
    assert not timer.is_alive()
    assert guard.check("sender-1", "target-1").allowed


# --- Settings and resets -------------------------------------------------------------------------


def test_the_defaults() -> None:
    config = load_messaging_guard_config({})
    limits = (config.failure_threshold, config.reset_timeout_ms, config.success_threshold)
    assert limits == (5, 30_000, 2)
    assert (config.rate_limit_per_window, config.rate_limit_window_ms) == (10, 60_000)


@pytest.mark.parametrize(
    ("variable", "field"),
    [
        ("AGENT_CB_FAILURE_THRESHOLD", "failure_threshold"),
        ("AGENT_CB_RESET_TIMEOUT_MS", "reset_timeout_ms"),
        ("AGENT_CB_SUCCESS_THRESHOLD", "success_threshold"),
        ("AGENT_RATE_LIMIT_PER_MIN", "rate_limit_per_window"),
    ],
)
@pytest.mark.parametrize(
    ("text", "is_taken"), [("7", True), ("0", False), ("-3", False), ("x", False), ("", False)]
)
def test_a_variable_sets_its_field_and_nonsense_falls_back_to_the_default(
    variable: str, field: str, text: str, is_taken: bool
) -> None:
    changed, default = (
        load_messaging_guard_config({variable: text}),
        load_messaging_guard_config({}),
    )
    assert getattr(changed, field) == (7 if is_taken else getattr(default, field))
    others = set(default.__struct_fields__) - {field}
    assert all(getattr(changed, one) == getattr(default, one) for one in others)


def test_a_guard_uses_the_limits_it_is_given(clock: ManualClock) -> None:
    config = {"AGENT_CB_FAILURE_THRESHOLD": "2", "AGENT_RATE_LIMIT_PER_MIN": "1"}
    guard = MessagingGuard(load_messaging_guard_config(config), clock=clock)
    assert [guard.check("sender-1", "target-1").allowed for _ in range(2)] == [True, False]
    fail(guard, 2)
    assert guard.get_circuit_state("target-1") == "OPEN"
    guard.stop()


def test_resetting_one_circuit_leaves_the_others(guard: MessagingGuard) -> None:
    for target in ("target-1", "target-2"):
        fail(guard, target=target)
    guard.reset_circuit("target-1")
    guard.reset_circuit("never-heard-of")
    states = [guard.get_circuit_state(one) for one in ("target-1", "target-2", "never-heard-of")]
    assert states == ["CLOSED", "OPEN", "CLOSED"]


def test_resetting_everything_closes_circuits_and_empties_windows(guard: MessagingGuard) -> None:
    fail(guard)
    for _ in range(11):
        guard.check("sender-1", "target-2")
    guard.reset_all()
    assert guard.check("sender-1", "target-1").allowed


# --- Requests of an agent ------------------------------------------------------------------------


async def test_an_agent_asks_the_guard_before_a_request_and_reports_the_outcome(
    served: ServedRelay,
) -> None:
    relay = await served.start()
    config = load_messaging_guard_config({"AGENT_CB_FAILURE_THRESHOLD": "1"})
    options = ClientOptions(guard=config)
    async with connect(relay.url, relay.identity("agent.s"), options=options) as agent:
        with pytest.raises(RequestTimedOut):
            await agent.request("agent.r", "anyone there?", timeout=0.05)
        with pytest.raises(RequestBlocked) as blocked:
            await agent.request("agent.r", "still not?", timeout=0.05)
        assert (blocked.value.reason, blocked.value.retry_after_ms > 0) == ("CIRCUIT_OPEN", True)


async def test_the_guard_limits_the_requests_of_an_agent_to_ten_a_minute(
    served: ServedRelay,
) -> None:
    relay = await served.start()
    async with (
        connect(relay.url, relay.identity("agent.s")) as agent,
        connect(relay.url, relay.identity("agent.r")) as other,
    ):
        for number in range(10):
            asked = asyncio.ensure_future(agent.request("agent.r", number))
            async with await other.receive(60) as message:
                await message.reply("yes")
            await asked
        with pytest.raises(RequestBlocked) as blocked:
            await agent.request("agent.r", 10)
        assert blocked.value.reason == "RATE_LIMITED"
