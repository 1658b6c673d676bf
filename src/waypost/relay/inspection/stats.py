"""What an operator wants to know about a relay at a glance."""

import msgspec

from waypost.policy.backpressure import check_backpressure
from waypost.policy.breakers import CircuitBreakers, CircuitBreakerState
from waypost.policy.settings import Settings
from waypost.relay.state.relay_state import RelayState

_TOP_SENDERS = 10


class EndpointMetrics(msgspec.Struct, frozen=True):
    """One mailbox: what waits, what is leased, what is dead, and who fills it."""

    subject: str
    hash: str
    pending: int
    leased: int
    dead: int
    bytes: int
    pressure: float
    top_senders: list[tuple[str, int, int]]


class Metrics(msgspec.Struct, frozen=True):
    """`by_status` counts messages now; `events` counts what happened since the relay opened."""

    seq: int
    commits: int
    total_messages: int
    by_status: dict[str, int]
    events: dict[str, int]
    rejected: dict[str, int]
    endpoints: list[EndpointMetrics]
    breakers: dict[str, CircuitBreakerState]
    senders_tracked: int
    storage: str
    durability: str
    storage_full: bool
    problems: list[str]


def mailbox_metrics(state: RelayState, settings: Settings) -> list[EndpointMetrics]:
    """Every mailbox that is registered or holds something."""
    leased: dict[str, int] = {}
    for endpoint, _ in state.leased:
        leased[endpoint] = leased.get(endpoint, 0) + 1
    found = []
    for mailbox in state.mailboxes.values():
        held = sorted(mailbox.occupancy.by_sender.items(), key=lambda item: -item[1][1])
        found.append(
            EndpointMetrics(
                subject=mailbox.subject,
                hash=mailbox.hash,
                pending=mailbox.occupancy.depth - leased.get(mailbox.subject, 0),
                leased=leased.get(mailbox.subject, 0),
                dead=len(mailbox.dead),
                bytes=mailbox.occupancy.bytes,
                pressure=check_backpressure(
                    mailbox.occupancy.depth, settings.backpressure
                ).pressure,
                top_senders=[(sender, *usage) for sender, usage in held[:_TOP_SENDERS]],
            )
        )
    return found


def measure(
    state: RelayState,
    settings: Settings,
    breakers: CircuitBreakers,
    journal: tuple[int, bool],
    problems: list[str],
) -> Metrics:
    """A snapshot; `journal` is how many commits there were and whether the disk is full."""
    endpoints = mailbox_metrics(state, settings)
    by_status = {
        "pending": sum(one.pending for one in endpoints),
        "leased": len(state.leased),
        "dead": sum(one.dead for one in endpoints),
    }
    prefix = "rejected."
    return Metrics(
        seq=state.seq,
        commits=journal[0],
        total_messages=sum(by_status.values()),
        by_status=by_status,
        events={k: n for k, n in state.counts.items() if "." not in k},
        rejected={
            k.removeprefix(prefix): n for k, n in state.counts.items() if k.startswith(prefix)
        },
        endpoints=endpoints,
        breakers=breakers.get_states(),
        senders_tracked=len(state.windows),
        storage=settings.storage,
        durability=settings.durability,
        storage_full=journal[1],
        problems=[problem for problem in problems if problem],
    )
