"""The operator: looks at the dead letters every few hours, redrives some, throws away the old."""

from datetime import timedelta

from waypost.simulate.world import HOUR_US, Process, World

_LOOKS_AT = 100
_REDRIVEN = 0.1
_KEPT = timedelta(hours=4)


def operate(world: World) -> Process:
    """Look after the dead letters until the end."""
    random, relay = world.random("operator"), world.relay
    while (at_us := world.clock.now_us + int((1 + random.random()) * HOUR_US)) < world.end_us:
        yield at_us
        letters = yield relay.dead_letters(limit=_LOOKS_AT)
        chosen = [letter.envelope.id for letter in letters if random.random() < _REDRIVEN]
        if chosen:
            yield relay.redrive(chosen)
        yield relay.purge_dead_letters(older_than=_KEPT)
