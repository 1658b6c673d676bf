"""What messages say: text of many lengths, made once and used again and again, as JSON."""

from random import Random

from msgspec import Raw

from waypost.wire.payloads import encode_payload

_WORDS = (
    *("order", "invoice", "refund", "ticket", "status", "report", "please", "check", "done"),
    *("failed", "retry", "the", "a", "of", "for", "with", "customer", "payment", "shipment"),
    *("delayed", "today", "tomorrow", "agent", "summary", "draft", "review", "approved"),
)
_POOL = 512
_SHORT_MIN, _SHORT_MAX = 48, 950
_LONG_MIN, _LONG_MAX = 4_500, 12_000
"""In characters; long ones do not fit into a journal line and go to the body file."""


class Payloads:
    """A pool of payloads; most are short, one in a hundred or so is long."""

    def __init__(self, random: Random) -> None:
        self._random = random
        ratio = _SHORT_MAX / _SHORT_MIN
        short = [_payload(random, int(_SHORT_MIN * ratio ** random.random())) for _ in range(_POOL)]
        self._long = [_payload(random, random.randint(_LONG_MIN, _LONG_MAX)) for _ in range(16)]
        self._any = [*short, *self._long[:4]]

    def any(self) -> Raw:
        """Mostly short: 64 B to 1 KB."""
        return self._any[int(self._random.random() * len(self._any))]

    def long(self) -> Raw:
        """4.5 to 12 KB."""
        return self._long[int(self._random.random() * len(self._long))]


def _payload(random: Random, length: int) -> Raw:
    words: list[str] = []
    so_far = 0
    while so_far < length:
        word = random.choice(_WORDS)
        words.append(word)
        so_far += len(word) + 1
    text = " ".join(words)[:length]
    return Raw(encode_payload({"text": text, "number": random.randrange(10_000)}))
