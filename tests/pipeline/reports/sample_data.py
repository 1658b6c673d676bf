"""Facts as a lively lake would give them, made without one."""

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
)

FIRST_MS = 1_767_398_400_000  # 3 Jan 2026
STEP_MS = 1_800_000
COARSE_MS = 3_600_000
STEPS = 160
LAST_MS = FIRST_MS + STEPS * STEP_MS
LONG_NAME = "agent.accounting.reconciliation.quarterly.statements.archive-of-2026"


def sample_report() -> ReportData:
    """Three days and a bit, with something in every section."""
    made = random.Random(7)
    steps = [_traffic_step(place, made) for place in range(STEPS)]
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


def _at(place: int) -> int:
    return FIRST_MS + place * STEP_MS


def _traffic_step(place: int, made: random.Random) -> TrafficStep:
    daily = 1.15 + math.sin((place % 48 - 16) / 48 * 2 * math.pi)
    stored = int(600 * daily * made.uniform(0.85, 1.15))
    flood = 900 if 70 <= place < 76 else 0
    rejected = flood + made.randrange(20)
    return TrafficStep(
        _at(place),
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
    flood = [ReasonStep(_at(place), "rate_limited", 900) for place in range(70, 76)]
    trickle = [
        ReasonStep(_at(place), reason, made.randrange(1, 12))
        for reason, every in (("backpressure", 5), ("quota_exceeded", 9), ("circuit_open", 21))
        for place in range(0, STEPS, every)
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
            _at(place), _waits(600, (900 if 70 <= place < 78 else 35) * made.uniform(0.7, 1.4))
        )
        for place in range(STEPS)
        if not 20 <= place < 26
    ]
    names = ["agent.planner", "agent.billing.refunds", LONG_NAME, "agent.search", "agent.audit"]
    inboxes = [
        LatencyInbox("north", name, 4e7 / (place + 1), _waits(9_000 // (place + 1), 40.0 + place))
        for place, name in enumerate(names)
    ]
    overall = _waits(92_341, 35.2)
    return Latency(
        overall=overall,
        steps=steps,
        step_ms=STEP_MS,
        inboxes=inboxes,
        more=56,
        waited_ms=1.4e8,
    )


def _pressure(made: random.Random) -> Pressure:
    names = [LONG_NAME, "agent.planner", *(f"agent.worker-{place}" for place in range(12))]
    inboxes, cells = [], []
    for place, name in enumerate(names):
        peak = max(0.02, 1.0 - place * 0.09)
        for step in range(STEPS // 2):
            if made.random() < 0.12:
                continue
            wave = 0.5 + 0.5 * math.sin(step / 7 + place)
            value = min(peak, peak * wave * made.uniform(0.6, 1.3))
            cells.append(PressureStep(place, FIRST_MS + step * COARSE_MS, value))
        depth = int(peak * 1_000)
        inboxes.append(
            PressureInbox(
                "north", name, peak, _at(72), depth, 1_000, 12 - place if place < 3 else 0
            )
        )
    return Pressure(warning_at=0.8, inboxes=inboxes, steps=cells, more=47, warned=3)


def _senders() -> SenderSummary:
    senders = [
        SenderTotal(
            "north",
            f"agent.sender-{place}",
            9_000 // (place + 1),
            8_000 // (place + 1),
            1_000 // (place + 1),
            300 * place,
            7_000_000 // (place + 1),
            412 // (place + 1),
        )
        for place in range(15)
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
        BreakerSpan(_at(60) + place * 900_000, _at(60) + place * 900_000 + 30_000, "OPEN")
        for place in range(9)
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
            "was refused 5,400 of 6,120 publishes by its rate limit",
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
    steps = [ConnectionStep(_at(place), made.randrange(1, 9)) for place in range(0, STEPS, 2)]
    agents = [
        AgentConnections("north", f"agent.mobile-{place}", 90 - place * 5, 7_000_000.0, place % 2)
        for place in range(12)
    ]
    return ConnectionSummary(
        connections=402, open=6, median_ms=84_000.0, agents=agents, more=4, steps=steps
    )
