"""Results of measurements, and their comparison."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

WAYPOST, DUCKDB, POLARS, SEQUENTIAL = "Waypost", "DuckDB", "Polars", "sequential replay"
RUN_FRESH, RUN_WARM, IMPORT = "run, fresh process", "run, warm server", "import-trace"
COMMANDS = (RUN_FRESH, RUN_WARM, IMPORT)
BUILD_WARM = "build, warm session"


@dataclass(frozen=True)
class Figure:
    """The fastest run of one job, at one size, by one engine.

    `amount` is the number of events or messages, `copies` that of relays. `rows` are the numbers of
    result rows, by name. An engine that failed has no time, and a `failure`.
    """

    job: str
    peer: str
    amount: int
    copies: int
    seconds: float | None
    peak_bytes: int = 0
    rows: Mapping[str, int] = field(default_factory=dict)
    cpu_seconds: float = 0.0
    start_seconds: float = 0.0
    reading_seconds: float = 0.0
    failure: str = ""

    @property
    def rate(self) -> float:
        """Return events or messages per second; 0 for a failure."""
        return self.amount / self.seconds if self.seconds else 0.0

    @property
    def failure_line(self) -> str:
        """Return the most telling line of `failure`."""
        lines = self.failure.strip().splitlines() or [""]
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return errors[-1] if errors else lines[0]


def fastest(runs: Sequence[Figure]) -> Figure:
    """Return the fastest run, with the highest memory of all runs."""
    best = min(runs, key=lambda one: float("inf") if one.seconds is None else one.seconds)
    peak = max(one.peak_bytes for one in runs)
    return Figure(**{**best.__dict__, "peak_bytes": peak})


def require_agreement(figures: Iterable[Figure]) -> None:
    """Raise `RuntimeError` if two figures have different numbers of the same name."""
    known: dict[str, tuple[str, int]] = {}
    for figure in figures:
        for name, number in figure.rows.items():
            peer, other = known.setdefault(name, (figure.peer, number))
            if number != other:
                raise RuntimeError(
                    f"{figure.job} of {figure.amount:,}: {peer} has {other:,} {name},"
                    f" {figure.peer} has {number:,}"
                )


def pick(figures: Iterable[Figure], job: str, peer: str) -> list[Figure]:
    """Return the figures of one job by one engine, smallest first."""
    found = [one for one in figures if one.job == job and one.peer == peer]
    return sorted(found, key=lambda one: one.amount)


def time_ratio(figure: Figure, others: Iterable[Figure]) -> float | None:
    """Return Waypost's time (from `others`) relative to that of `figure` at the same size."""
    for other in others:
        if other.amount == figure.amount and other.seconds and figure.seconds:
            return other.seconds / figure.seconds
    return None


def growth(figure: Figure, smallest: Figure) -> float:
    """Return the time per event, relative to the smallest size."""
    return smallest.rate / figure.rate
