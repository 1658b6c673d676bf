"""Names reserved for the relay, and their exemptions."""

import pytest

from waypost.policy.admission import admit_sender
from waypost.policy.rate_limits import RateLimitConfig, RateWindows
from waypost.policy.reasons import Reason
from waypost.policy.reserved_names import ANONYMOUS, RELAY, is_reserved
from waypost.policy.settings import Settings
from waypost.policy.subjects import validate_subject
from waypost.policy.tiers import Tier, sender_tier

NOW_MS = 1_700_000_000_000
WEEK_MS = 7 * 24 * 3_600_000
ONE_A_MINUTE = Settings(rate_limit=RateLimitConfig(max_per_window=1))


@pytest.mark.parametrize("subject", [RELAY, ANONYMOUS, "_", "_x.y", "_*", "_.>"])
def test_names_that_begin_with_an_underscore_are_reserved(subject: str) -> None:
    assert is_reserved(subject)


@pytest.mark.parametrize("subject", ["agent.a", "agent._relay", "a_", "a._", "*", ">", "*._relay"])
def test_all_other_names_are_not(subject: str) -> None:
    assert not is_reserved(subject)


@pytest.mark.parametrize("subject", [RELAY, ANONYMOUS])
def test_the_relays_own_names_are_subjects(subject: str) -> None:
    assert validate_subject(subject) == subject


def sent_once(sender: str) -> RateWindows:
    windows = RateWindows()
    windows.record(sender, NOW_MS)
    return windows


def test_the_relay_has_no_rate_limit() -> None:
    assert admit_sender(RELAY, sent_once(RELAY), ONE_A_MINUTE, NOW_MS).reason is None


@pytest.mark.parametrize("sender", [ANONYMOUS, "agent.a", "_relay2"])
def test_everybody_else_has_one(sender: str) -> None:
    verdict = admit_sender(sender, sent_once(sender), ONE_A_MINUTE, NOW_MS)
    assert verdict.reason is Reason.RATE_LIMITED


def test_everyone_knows_the_relay() -> None:
    assert sender_tier(RELAY, NOW_MS, None, NOW_MS, WEEK_MS) is Tier.ACTIVE


def test_anonymous_senders_are_unknown_whatever_was_sent_to_them() -> None:
    assert sender_tier(ANONYMOUS, NOW_MS, NOW_MS, NOW_MS, WEEK_MS) is Tier.UNKNOWN


@pytest.mark.parametrize(
    ("received_ms", "tier"),
    [
        (None, Tier.UNKNOWN),
        (NOW_MS - WEEK_MS, Tier.ACTIVE),
        (NOW_MS - WEEK_MS - 1, Tier.ACKNOWLEDGED),
    ],
)
def test_agents_stand_as_their_conversation_does(received_ms: int | None, tier: Tier) -> None:
    assert sender_tier("agent.a", NOW_MS, received_ms, NOW_MS, WEEK_MS) is tier
