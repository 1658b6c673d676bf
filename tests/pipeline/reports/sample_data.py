"""Report data of a busy lake, made without one."""

import math
import random

from waypost.pipeline.reports.data import (
    AgentConnections,
    Anomaly,
    AnomalySummary,
    Breaker,
    BreakerSpan,
    BreakerSummary,
    BusyInbox,
    ConnectionStep,
    ConnectionSummary,
    DeadInbox,
    DeadLetterSummary,
    DeadReason,
    InboxSender,
    Latency,
    LatencyInbox,
    LatencyStep,
    Loop,
    Percentiles,
    Period,
    Pressure,
    PressureInbox,
    PressureStep,
    ReasonStep,
    ReasonTotal,
    Rejections,
    ReportData,
    Scope,
    SenderSummary,
    SenderTotal,
    TierTotal,
    Traffic,
    TrafficStep,
    UnackedInbox,
)

FIRST_MS = 1_767_398_400_000  # 3 Jan 2026
STEP_MS = 1_800_000
COARSE_MS = 3_600_000
STEPS = 160
LAST_MS = FIRST_MS + STEPS * STEP_MS
LONG_NAME = "agent.accounting.reconciliation.quarterly.statements.archive-of-2026"


def sample_report() -> ReportData:
    """Return data of three and a third days, with content for every section."""
    made = random.Random(7)
    steps = [_traffic_step(index, made) for index in range(STEPS)]
    return ReportData(
        scope=Scope(lake_version=7, days=4, relays=["north"], senders=148, inboxes=61),
        period=Period(FIRST_MS, LAST_MS, STEP_MS, COARSE_MS),
        traffic=_traffic(steps),
        rejections=_rejections(made),
        latency=_latency(made),
        pressure=_pressure(made),
        tiers=[TierTotal(1, 9_120, 1_204), TierTotal(2, 21_480, 310), TierTotal(3, 64_002, 12)],
        senders=_senders(),
        breakers=_breakers(),
        dead_letters=_dead_letters(),
        anomalies=_anomalies(),
        connections=_connections(made),
    )


def _at(index: int) -> int:
    return FIRST_MS + index * STEP_MS


def _traffic_step(index: int, made: random.Random) -> TrafficStep:
    daily = 1.15 + math.sin((index % 48 - 16) / 48 * 2 * math.pi)
    stored = int(600 * daily * made.uniform(0.85, 1.15))
    flood = 900 if 70 <= index < 76 else 0
    rejected = flood + made.randrange(20)
    return TrafficStep(
        _at(index),
        stored + rejected,
        stored,
        made.randrange(9),
        rejected,
        stored - 3,
        2,
        stored * 900,
    )


def _traffic(steps: list[TrafficStep]) -> Traffic:
    sums = [sum(getattr(one, name) for one in steps) for name in TrafficStep.__struct_fields__[1:]]
    return Traffic(
        steps=steps,
        total=TrafficStep(FIRST_MS, *sums),
        busiest_minute_ms=_at(72) + 300_000,
        busiest_publishes=412,
    )


def _rejections(made: random.Random) -> Rejections:
    flood = [ReasonStep(_at(index), "rate_limited", 900) for index in range(70, 76)]
    trickle = [
        ReasonStep(_at(index), reason, made.randrange(1, 12))
        for reason, every in (("backpressure", 5), ("quota_exceeded", 9), ("circuit_open", 21))
        for index in range(0, STEPS, every)
    ]
    totals = [
        ReasonTotal("rate_limited", 5_400, 1, 0, "rate limit exceeded: 100/100 in 60s window"),
        ReasonTotal("backpressure", 208, 31, 4, "mailbox full (1000/1000)"),
        ReasonTotal("quota_exceeded", 97, 12, 3, "sender quota exceeded for this inbox"),
        ReasonTotal("circuit_open", 44, 9, 2, "circuit open"),
        ReasonTotal("budget_exceeded", 14, 3, 2, "cycle detected: agent.b already in chain"),
    ]
    loops = [ReasonStep(_at(110), "budget_exceeded", 14)]
    return Rejections(reasons=totals, steps=[*flood, *trickle, *loops])


def _waits(messages: int, middle: float) -> Percentiles:
    return Percentiles(
        messages, middle, middle * 14, middle * 60, middle * 1.8, middle * 30, middle * 140
    )


def _latency(made: random.Random) -> Latency:
    steps = [
        LatencyStep(
            _at(index), _waits(600, (900 if 70 <= index < 78 else 35) * made.uniform(0.7, 1.4))
        )
        for index in range(STEPS)
        if not 20 <= index < 26
    ]
    names = ["agent.planner", "agent.billing.refunds", LONG_NAME, "agent.search", "agent.audit"]
    inboxes = [
        LatencyInbox("north", name, 4e7 / (index + 1), _waits(9_000 // (index + 1), 40.0 + index))
        for index, name in enumerate(names)
    ]
    overall = _waits(92_341, 35.2)
    return Latency(
        overall=overall,
        steps=steps,
        step_ms=STEP_MS,
        inboxes=inboxes,
        more=56,
        waited_ms=1.4e8,
        unacked=[
            UnackedInbox("north", LONG_NAME, 1_204, 256, _at(3)),
            UnackedInbox("north", "agent.audit", 1, 0, _at(50)),
        ],
        unacked_more=2,
    )


def _pressure(made: random.Random) -> Pressure:
    names = [LONG_NAME, "agent.planner", *(f"agent.worker-{index}" for index in range(12))]
    inboxes, cells = [], []
    for index, name in enumerate(names):
        peak = max(0.02, 1.0 - index * 0.09)
        for step in range(STEPS // 2):
            if made.random() < 0.12:
                continue
            wave = 0.5 + 0.5 * math.sin(step / 7 + index)
            value = min(peak, peak * wave * made.uniform(0.6, 1.3))
            cells.append(PressureStep(index, FIRST_MS + step * COARSE_MS, value))
        depth = int(peak * 1_000)
        inboxes.append(
            PressureInbox(
                "north", name, peak, _at(72), depth, 1_000, 12 - index if index < 3 else 0
            )
        )
    return Pressure(warning_at=0.8, inboxes=inboxes, steps=cells, more=47, warned=3)


def _senders() -> SenderSummary:
    senders = [
        SenderTotal(
            "north",
            f"agent.sender-{index}",
            9_000 // (index + 1),
            8_000 // (index + 1),
            1_000 // (index + 1),
            300 * index,
            7_000_000 // (index + 1),
            412 // (index + 1),
        )
        for index in range(15)
    ]
    inboxes = [
        BusyInbox(
            "north",
            name,
            10_000,
            [
                InboxSender("agent.web", 5_200, 0, 3),
                InboxSender("agent.crawler", 1_900, 640, 1),
                InboxSender(LONG_NAME, 800, 2, 2),
                InboxSender("agent.audit", 400, 0, 3),
                InboxSender("agent.search", 210, 0, 3),
            ],
            37,
        )
        for name in ("agent.planner", "agent.billing.refunds", "agent.search")
    ]
    return SenderSummary(senders=senders, more=133, inboxes=inboxes, inboxes_more=58)


def _breakers() -> BreakerSummary:
    spans = [
        BreakerSpan(_at(30), _at(33), "OPEN"),
        BreakerSpan(_at(33), _at(34), "HALF_OPEN"),
        BreakerSpan(_at(34), _at(40), "OPEN"),
        BreakerSpan(_at(90), _at(91), "OPEN"),
        BreakerSpan(_at(91), _at(93), "HALF_OPEN"),
    ]
    late = [BreakerSpan(_at(150), None, "OPEN")]
    short = [
        BreakerSpan(_at(60) + index * 900_000, _at(60) + index * 900_000 + 30_000, "OPEN")
        for index in range(9)
    ]
    return BreakerSummary(
        breakers=[
            Breaker("north", "agent.billing.refunds", 3, 18_000_000, "CLOSED", spans, 0),
            Breaker("north", LONG_NAME, 1, 18_000_000, "OPEN", late, 0),
            Breaker("north", "agent.audit", 9, 270_000, "CLOSED", short, 4),
        ],
        opened=13,
    )


def _dead_letters() -> DeadLetterSummary:
    texts = [
        ("handler failed: ConnectionError: payment service is away", 61, 40),
        ("time to live is over", 22, 22),
        ("max hops exceeded (5/5)", 9, 0),
        ("cycle detected: agent.b is in its own chain", 14, 14),
    ]
    reasons = [
        DeadReason(text, messages, waiting, messages - waiting, 0, 2, _at(30), _at(140))
        for text, messages, waiting in texts
    ]
    inboxes = [
        DeadInbox("north", "agent.billing.refunds", 61, 40),
        DeadInbox("north", "agent.b", 45, 36),
    ]
    return DeadLetterSummary(
        messages=106,
        waiting=76,
        redriven=30,
        purged=0,
        reasons=reasons,
        reasons_more=3,
        inboxes=inboxes,
    )


def _anomalies() -> AnomalySummary:
    loop = Loop("north", "agent.b", ["agent.b", "agent.c", "agent.b"], 14, 2, _at(110), _at(112))
    anomalies = [
        Anomaly(
            "north",
            "agent.crawler",
            "flood",
            None,
            "tried to send 6,120 messages; 5,400 were rejected, 5,400 by its rate limit",
            1,
            FIRST_MS + 86_400_000,
        ),
        Anomaly(
            "north",
            "agent.newsletter",
            "one_way",
            None,
            "sent 4,120 messages to 12 agents and got no answer",
            3,
            FIRST_MS,
        ),
    ]
    return AnomalySummary(loops=[loop], anomalies=anomalies)


def _connections(made: random.Random) -> ConnectionSummary:
    steps = [ConnectionStep(_at(index), made.randrange(1, 9)) for index in range(0, STEPS, 2)]
    agents = [
        AgentConnections("north", f"agent.mobile-{index}", 90 - index * 5, 7_000_000.0, index % 2)
        for index in range(12)
    ]
    return ConnectionSummary(
        connections=402, open=6, median_ms=84_000.0, agents=agents, more=4, steps=steps
    )
