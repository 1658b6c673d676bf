"""The spread of traffic over days and nights."""

from itertools import pairwise

import pytest

from waypost.simulate.world import DailyCurve

DAY_US = 86_400_000_000


def test_all_traffic_is_within_the_span() -> None:
    curve = DailyCurve(DAY_US, 2 * DAY_US)
    assert curve.instant_us(0.0) == DAY_US
    assert curve.instant_us(1.0) == 3 * DAY_US
    assert curve.instant_us(1.5) == 3 * DAY_US


def test_the_instants_are_in_order_of_their_shares() -> None:
    curve = DailyCurve(0, DAY_US)
    instants = [curve.instant_us(share / 1000) for share in range(1001)]
    assert all(before < after for before, after in pairwise(instants))


def test_each_whole_day_has_the_same_share() -> None:
    curve = DailyCurve(0, 4 * DAY_US)
    assert curve.instant_us(0.25) == pytest.approx(DAY_US, rel=1e-6)


def test_the_afternoon_has_six_times_the_traffic_of_the_night() -> None:
    curve = DailyCurve(0, DAY_US)
    hours = [curve.instant_us(share / 10_000) // (DAY_US // 24) for share in range(10_000)]
    day = sum(12 <= hour < 18 for hour in hours)
    night = sum(hour < 6 for hour in hours)
    assert day / night == pytest.approx(6.15, abs=0.1)
