"""Formats numbers, times and names for people. Pure; all times are UTC."""

from datetime import UTC, datetime

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS


def number(value: float) -> str:
    """Format a number: whole ones as 1,234, others with three significant digits."""
    if float(value).is_integer():
        return f"{int(value):,}"
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def compact(value: float) -> str:
    """Format a number for an axis: 12,500 as 12.5k."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size * (10 if unit == "k" else 1):
            return f"{value / size:.3g}{unit}"
    return number(value)


def plural(count: int, one: str, many: str = "") -> str:
    """Format a count with its noun: `3 messages`, `1 message`."""
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def share(part: float, whole: float) -> str:
    """Format `part` of `whole` in percent; 0% and 100% only if exact."""
    if whole <= 0 or part <= 0:
        return "0%"
    percent = 100 * part / whole
    if percent < 0.1:
        return "under 0.1%"
    if part < whole and percent >= 99.95:
        return "over 99.9%"
    return "100%" if part >= whole else f"{percent:.1f}%"


def duration(ms: float) -> str:
    """Format a duration in a fitting unit: 350 ms, 1.2 s, 3 min 5 s, 2 h 4 min, 3 d 2 h."""
    if ms < 999.5:
        return f"{ms:.3g} ms"
    if ms < 59_950:
        return f"{ms / SECOND_MS:.3g} s"
    whole_ms = max(round(ms), MINUTE_MS)
    if whole_ms < HOUR_MS:
        return _two_units(whole_ms, "min", MINUTE_MS, "s", SECOND_MS)
    if whole_ms < 2 * DAY_MS:
        return _two_units(whole_ms, "h", HOUR_MS, "min", MINUTE_MS)
    return _two_units(whole_ms, "d", DAY_MS, "h", HOUR_MS)


def _two_units(ms: int, large: str, large_ms: int, small: str, small_ms: int) -> str:
    whole, rest = divmod(ms, large_ms)
    parts = rest // small_ms
    return f"{whole:,} {large} {parts} {small}" if parts else f"{whole:,} {large}"


def size(count: float) -> str:
    """Format bytes in a fitting unit."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.3g} {unit}" if unit != "B" else f"{count:.0f} B"
        count /= 1024
    return f"{count:,.3g} TiB"


def when(at_ms: int) -> datetime:
    """Return the time in UTC."""
    return datetime.fromtimestamp(at_ms / SECOND_MS, UTC)


def instant(at_ms: int) -> str:
    """Format a time as `3 Jan 2026 14:05`."""
    at = when(at_ms)
    return f"{at.day} {at:%b %Y %H:%M}"


def at_minute(at_ms: int) -> str:
    """Format a time as `14:05 on 3 Jan`."""
    at = when(at_ms)
    return f"{at:%H:%M} on {at.day} {at:%b}"


def day(at_ms: int) -> str:
    """Format a day as `3 Jan 2026`."""
    at = when(at_ms)
    return f"{at.day} {at:%b %Y}"


def step(width_ms: int) -> str:
    """Format the length of a time step: `minute`, `5 minutes`, `hour`, `7 days`."""
    for name, unit in (("day", DAY_MS), ("hour", HOUR_MS), ("minute", MINUTE_MS)):
        if width_ms % unit == 0:
            return name if width_ms == unit else f"{width_ms // unit:,} {name}s"
    return duration(width_ms)


def join_names(names: list[str]) -> str:
    """Join names: `a`, `a and b`, `a, b and c`."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def shorten(text: str, most: int) -> str:
    """Shorten `text` to `most` characters, in the middle: the ends distinguish names."""
    if len(text) <= most:
        return text
    tail = (most - 1) // 2
    return f"{text[: most - 1 - tail]}…{text[len(text) - tail :]}"
