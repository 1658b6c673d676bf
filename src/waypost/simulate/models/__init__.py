"""What agents do: one module for each model, and the table of them.

A model hires agents of its own, begins processes, and sends its portion of the messages, all of
it: how many there are and when they are due is up to the portion.
"""

from waypost.simulate.models.absences import ABSENCES
from waypost.simulate.models.broadcasts import BROADCASTS
from waypost.simulate.models.conversations import CONVERSATIONS
from waypost.simulate.models.crashes import CRASHES
from waypost.simulate.models.flood import FLOOD
from waypost.simulate.models.loops import LOOPS
from waypost.simulate.models.model import Model
from waypost.simulate.models.overflow import OVERFLOW
from waypost.simulate.models.slow_consumer import SLOW_CONSUMER

MODELS: dict[str, Model] = {
    "conversations": CONVERSATIONS,
    "flood": FLOOD,
    "slow-consumer": SLOW_CONSUMER,
    "loops": LOOPS,
    "absences": ABSENCES,
    "crashes": CRASHES,
    "broadcasts": BROADCASTS,
    "overflow": OVERFLOW,
}
"""By the names that scenarios use."""
