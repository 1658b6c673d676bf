"""What an operator should look at: ranked, each with advice, a command and a link."""

from typing import Any

import msgspec
import pytest

from waypost.policy.breakers import CircuitState
from waypost.policy.reasons import WORDS, Reason
from waypost.relay.inspection.findings import EACH_MAX, Facts, what_to_look_at
from waypost.wire.findings import FindingKind, OperatorFinding, SenderRejections

MINUTE_US = 60_000_000
NOW_US = 1_000 * MINUTE_US
GIB = 1024**3


class Inbox(msgspec.Struct, kw_only=True):
    subject: str = "agent.a"
    pending: int = 1
    scheduled: int = 0
    leased: int = 0
    pressure: float = 0.0
    oldest_us: int | None = None


def look(**facts: Any) -> list[OperatorFinding]:
    known = {"now_us": NOW_US, "inboxes": [], "warning_at": 0.8, "breakers": {}}
    return what_to_look_at(Facts(**{**known, **facts}))


def rejected(sender: str, **reasons: int) -> SenderRejections:
    return SenderRejections(sender=sender, total=sum(reasons.values()), reasons=reasons)


TROUBLES: dict[FindingKind, dict[str, Any]] = {
    FindingKind.STORAGE_FULL: {"full_because": "the disk is full"},
    FindingKind.DISK_LOW: {"disk": (1 * GIB, 100 * GIB)},
    FindingKind.INBOX_FULL: {"inboxes": [Inbox(pressure=1.0)]},
    FindingKind.BREAKER_OPEN: {"breakers": {"agent.a": CircuitState.OPEN}},
    FindingKind.AGENT_STUCK: {"stuck": {"agent.a": NOW_US - MINUTE_US}},
    FindingKind.SENDER_REJECTED: {"rejections": [rejected("agent.a", rate_limited=20)]},
    FindingKind.INBOX_FILLING: {"inboxes": [Inbox(pressure=0.8)]},
    FindingKind.MESSAGES_OLD: {"inboxes": [Inbox(oldest_us=NOW_US - 30 * MINUTE_US)]},
}


@pytest.mark.parametrize("kind", FindingKind)
def test_each_trouble_is_a_finding_that_can_be_acted_on(kind: FindingKind) -> None:
    [found] = look(**TROUBLES[kind])
    assert found.kind is kind
    assert found.text.endswith(".")
    assert found.advice.endswith(".")
    assert found.command
    assert found.link.startswith("#/")


def test_findings_come_in_the_order_of_their_kinds() -> None:
    inboxes = [one for trouble in TROUBLES.values() for one in trouble.get("inboxes", [])]
    everything = {name: value for one in TROUBLES.values() for name, value in one.items()}
    del everything["full_because"]
    kinds = [one.kind for one in look(**{**everything, "inboxes": inboxes})]
    assert kinds == [one for one in FindingKind if one is not FindingKind.STORAGE_FULL]


def test_a_calm_relay_has_none() -> None:
    calm = Inbox(pressure=0.5, oldest_us=NOW_US - MINUTE_US)
    disk = (20 * GIB, 2000 * GIB)  # one percent, but plenty
    few = [rejected("agent.b", access_denied=19)]
    assert look(inboxes=[calm], disk=disk, rejections=few) == []


def test_many_of_one_kind_do_not_hide_another() -> None:
    full = [Inbox(subject=f"agent.n{number}", pressure=1.0) for number in range(100)]
    found = look(inboxes=full, stuck={"agent.hung": NOW_US})
    assert [one.kind for one in found].count(FindingKind.INBOX_FULL) == EACH_MAX
    assert "95 more" in found[EACH_MAX - 1].text
    assert found[-1].subject == "agent.hung"


@pytest.mark.parametrize("sender", ["", "_operator", "_relay"])
def test_senders_that_cannot_be_denied_have_no_finding(sender: str) -> None:
    assert look(rejections=[rejected(sender, rate_limited=1000)]) == []


def test_a_data_directory_cannot_reset_its_breakers() -> None:
    [found] = look(breakers={"agent.a": CircuitState.HALF_OPEN}, served=False)
    assert found.command == ["breakers", "list"]
    assert "probes" in found.text


def test_scheduled_messages_count_among_those_that_fill_an_inbox() -> None:
    [found] = look(inboxes=[Inbox(pending=0, scheduled=7, leased=1, pressure=1.0)])
    assert "is full with 8 messages" in found.text


@pytest.mark.parametrize("reason", Reason)
def test_reasons_are_named_in_the_words_of_the_dashboard_and_the_report(reason: Reason) -> None:
    [found] = look(rejections=[rejected("agent.a", **{reason: 20})])
    assert f"lately: {WORDS[reason]} 20" in found.text
