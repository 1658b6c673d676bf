"""Results of measurements, their comparison, and the targets they have to meet."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

WAYPOST, DUCKDB, POLARS, SEQUENTIAL = "Waypost", "DuckDB", "Polars", "sequential replay"

INGEST_TARGET, BUILD_TARGET = 3.0, 4.0
"""Upper bounds of the time, relative to DuckDB."""

BACKTEST_TARGET = 8.0
"""Lower bound of the messages per second, relative to the sequential replay."""

PAYLOAD_TARGET = 1.3
"""Upper bound of the time per event with large payloads, relative to small ones."""


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


def targets(figures: Sequence[Figure]) -> list[str]:
    """Return a sentence for each target whose job was measured; the worst size decides."""
    sentences = []
    for job, target in (("ingest", INGEST_TARGET), ("build", BUILD_TARGET)):
        ours = pick(figures, job, WAYPOST)
        ratios = {
            one.amount: ratio
            for one in pick(figures, job, DUCKDB)
            if (ratio := time_ratio(one, ours)) is not None
        }
        if ratios:
            sentences.append(
                _sentence(f"{job} takes", ratios, f"as long as {DUCKDB}", target, most=True)
            )
    for job in ("backtest, same settings", "backtest, halved limits"):
        sequential = pick(figures, job, SEQUENTIAL)
        ours = pick(figures, job, WAYPOST)
        if sequential and ours:
            rates = {one.amount: one.rate / sequential[0].rate for one in ours}
            words = "as many messages per second as the sequential replay"
            sentences.append(
                _sentence(f"{job}: decides", rates, words, BACKTEST_TARGET, most=False)
            )
    payloads = [one for one in figures if one.job.startswith("ingest of payloads")]
    if payloads:
        small, large = (payloads[at].rate for at in (0, -1))
        ratio = small / large
        met = "met" if ratio <= PAYLOAD_TARGET else "NOT met"
        sentences.append(
            f"ingest with the largest payloads takes {ratio:.2f}× as long per event as with the"
            f" smallest; target: at most {PAYLOAD_TARGET:g}×, {met}"
        )
    return sentences


def _sentence(
    doing: str, ratios: Mapping[int, float], words: str, target: float, *, most: bool
) -> str:
    low, high = min(ratios.values()), max(ratios.values())
    span = f"{high:.1f}×" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}×"
    at_largest = ratios[max(ratios)]
    met_everywhere = high <= target if most else low >= target
    largest = at_largest <= target if most else at_largest >= target
    met = "met" if met_everywhere else "met at the largest size only" if largest else "NOT met"
    bound = "at most" if most else "at least"
    return f"{doing} {span} {words}; target: {bound} {target:g}×, {met}"
