"""Traffic models, by the names that scenarios use.

A model creates agents of its own, starts processes, and sends all messages of its quota. The quota
decides how many messages there are and when each is due.
"""

from waypost.simulate.models.conversations import BROADCASTS, CONVERSATIONS
from waypost.simulate.models.faults import ABSENCES, CRASHES, LOOPS
from waypost.simulate.models.model import Model
from waypost.simulate.models.overload import FLOOD, OVERFLOW, SLOW_CONSUMER

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
