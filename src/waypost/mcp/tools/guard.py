"""The guard of this agent's requests: its status, and the tool that resets it."""

from typing import Annotated

from mcp.types import CallToolResult

from waypost.client.guard import REJECTIONS, MessagingGuard
from waypost.mcp.connection import McpConnection
from waypost.mcp.quoting import quoted
from waypost.mcp.rendering import plural, success, with_instructions
from waypost.mcp.tools import parameters
from waypost.mcp.tools.results import GuardStatus
from waypost.policy.subjects import validate_pattern

CIRCUITS_MAX = 100
LISTED_MAX = 10


class GuardTools:
    """The tool for the guard of `connection`."""

    def __init__(self, connection: McpConnection) -> None:
        self._connection = connection

    @with_instructions
    async def relay_reset_guard(
        self, subject: parameters.ResetSubject = None
    ) -> Annotated[CallToolResult, GuardStatus]:
        """Close the circuit to one agent, or reset all limits of relay_send_and_wait.

        Only if the person you work for asks for it, or you know that the agent answers again: the
        limits protect other agents from you. relay_status shows what is blocked.
        """
        guard = self._connection.guard
        if subject is None:
            guard.reset_all()
            done = "All circuits are closed, and no earlier request counts."
        else:
            guard.reset_circuit(validate_pattern(subject))
            done = f"The circuit to {subject} is closed."
        facts = guard_status(guard, self._connection.subject)
        return success("\n".join([done, *guard_lines(facts)]), facts)


def guard_status(guard: MessagingGuard, subject: str) -> GuardStatus:
    """Return the use of the limits by the agent `subject`."""
    circuits = guard.get_circuit_states()
    return GuardStatus(
        requests=guard.calls_in_window(subject),
        requests_max=guard.config.rate_limit_per_window,
        window_seconds=guard.config.rate_limit_window_ms / 1000,
        circuits={name: circuits[name].value for name in sorted(circuits)[:CIRCUITS_MAX]},
        counters=guard.counters(),
    )


def guard_lines(facts: GuardStatus) -> list[str]:
    """Return the status in words; nothing while no limit was touched."""
    lines = []
    if facts.requests:
        lines.append(
            f"{facts.requests:,} of {plural(facts.requests_max, 'request')} in the last"
            f" {facts.window_seconds:g} seconds."
        )
    blocked = sum(facts.counters[name] for name in REJECTIONS.values())
    if blocked:
        lines.append(f"{plural(blocked, 'request')} blocked since this program began.")
    lines += [
        f"The circuit to {quoted(name)}: {state}."
        for name, state in list(facts.circuits.items())[:LISTED_MAX]
    ]
    return lines
