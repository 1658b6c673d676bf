"""What a replay leaves out, in words, for whoever reads its result."""

from waypost.pipeline.replay.settings_timeline import Eras
from waypost.policy.settings import Settings, to_config_document

# Paths in `config.json` that a replay follows; any other that differs is named.
_REPLAYED = (
    *("maxHops", "qos", "reliability.rateLimit", "reliability.circuitBreaker"),
    *("reliability.backpressure.enabled", "reliability.backpressure.maxMailboxSize"),
    "housekeeping.breakerIdleMs",
)


def notes_about(eras: Eras, counted: int) -> list[str]:
    """One sentence for each thing that was left as it was."""
    notes = []
    if counted:
        notes.append(
            f"{counted:,} refusals in floods were only counted by the relay; they are left as"
            " they were"
        )
    ignored = sorted(
        {path for era in eras.regimes for path in _differing(era.recorded, era.replayed)}
    )
    notes.extend(f"{path} is not replayed: it changes nothing here" for path in ignored)
    return notes


def _differing(recorded: Settings, replayed: Settings) -> list[str]:
    old, new = _paths(to_config_document(recorded)), _paths(to_config_document(replayed))
    return [
        path
        for path in old.keys() | new.keys()
        if old.get(path) != new.get(path)
        and not any(path == one or path.startswith(f"{one}.") for one in _REPLAYED)
    ]


def _paths(document: dict[str, object], above: str = "") -> dict[str, object]:
    """Every value of a document by its path, such as `reliability.rateLimit.enabled`."""
    found: dict[str, object] = {}
    for name, value in document.items():
        if isinstance(value, dict):
            found |= _paths(value, f"{above}{name}.")
        else:
            found[above + name] = value
    return found
