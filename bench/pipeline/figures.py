"""What was measured, what it is compared with, and whether the marks are met."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

WAYPOST, DUCKDB, POLARS, SEQUENTIAL = "Waypost", "DuckDB", "Polars", "sequential replay"

INGEST_MARK, BUILD_MARK = 3.0, 4.0
"""At most so many times as long as DuckDB."""

BACKTEST_MARK = 8.0
"""At least so many times as many messages per second as the sequential replay."""

PAYLOAD_MARK = 1.3
"""At most so many times as long per event with large payloads as with small ones."""


@dataclass(frozen=True)
class Figure:
    """One job at one size by one peer; of several runs, the quickest.

    `amount` is in events or messages, `copies` how many relays they are of. `rows` is what came
    out, by name. A peer that failed has no time, and `failure` says why.
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
        """Events or messages per second; 0 for a failure."""
        return self.amount / self.seconds if self.seconds else 0.0

    @property
    def why_failed(self) -> str:
        """The line of `failure` that says most."""
        lines = self.failure.strip().splitlines() or [""]
        errors = [line for line in lines if "Error" in line or "Exception" in line]
        return errors[-1] if errors else lines[0]


def quickest(runs: Sequence[Figure]) -> Figure:
    """The best time; the memory is the most that any of the runs took."""
    best = min(runs, key=lambda one: float("inf") if one.seconds is None else one.seconds)
    peak = max(one.peak_bytes for one in runs)
    return Figure(**{**best.__dict__, "peak_bytes": peak})


def require_agreement(figures: Iterable[Figure]) -> None:
    """Raise `RuntimeError` unless all got the same numbers, where they have the same names."""
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
    """Figures of one job by one peer, smallest first."""
    found = [one for one in figures if one.job == job and one.peer == peer]
    return sorted(found, key=lambda one: one.amount)


def time_ratio(figure: Figure, others: Iterable[Figure]) -> float | None:
    """Waypost's time by that of `figure`, which is another peer's at the same size."""
    for other in others:
        if other.amount == figure.amount and other.seconds and figure.seconds:
            return other.seconds / figure.seconds
    return None


def growth(figure: Figure, smallest: Figure) -> float:
    """Time for each event, by that at the smallest size."""
    return smallest.rate / figure.rate


def marks(figures: Sequence[Figure]) -> list[str]:
    """One sentence for each mark whose job was measured. Judged at the worst size."""
    told = []
    for job, mark in (("ingest", INGEST_MARK), ("build", BUILD_MARK)):
        ours = pick(figures, job, WAYPOST)
        ratios = {
            one.amount: ratio
            for one in pick(figures, job, DUCKDB)
            if (ratio := time_ratio(one, ours)) is not None
        }
        if ratios:
            told.append(_sentence(f"{job} takes", ratios, f"as long as {DUCKDB}", mark, most=True))
    for job in ("backtest, same settings", "backtest, halved limits"):
        plain = pick(figures, job, SEQUENTIAL)
        ours = pick(figures, job, WAYPOST)
        if plain and ours:
            rates = {one.amount: one.rate / plain[0].rate for one in ours}
            words = "as many messages per second as the sequential replay"
            told.append(_sentence(f"{job}: decides", rates, words, BACKTEST_MARK, most=False))
    payloads = [one for one in figures if one.job.startswith("ingest of payloads")]
    if payloads:
        small, large = (payloads[at].rate for at in (0, -1))
        ratio = small / large
        met = "met" if ratio <= PAYLOAD_MARK else "NOT met"
        told.append(
            f"ingest with the largest payloads takes {ratio:.2f}× as long per event as with the"
            f" smallest; mark: at most {PAYLOAD_MARK:g}×, {met}"
        )
    return told


def _sentence(
    doing: str, ratios: Mapping[int, float], words: str, mark: float, *, most: bool
) -> str:
    low, high = min(ratios.values()), max(ratios.values())
    span = f"{high:.1f}×" if f"{low:.1f}" == f"{high:.1f}" else f"{low:.1f} to {high:.1f}×"
    at_largest = ratios[max(ratios)]
    fine = high <= mark if most else low >= mark
    largest = at_largest <= mark if most else at_largest >= mark
    met = "met" if fine else "met at the largest size only" if largest else "NOT met"
    bound = "at most" if most else "at least"
    return f"{doing} {span} {words}; mark: {bound} {mark:g}×, {met}"
