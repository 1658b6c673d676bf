"""Ed25519 keys of small order, with signatures that are valid for any text."""

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from waypost.wire.handshake import to_text

_P = 2**255 - 19
_D = -121665 * pow(121666, -1, _P) % _P
_GROUP_ORDER = 2**252 + 27742317777372353535851937790883648493
Point = tuple[int, int]


def small_order_points() -> list[Point]:
    """Return the eight points of order 1, 2, 4 and 8, computed from the curve."""
    y, found = 2, [(0, 1)]
    while len(found) < 8:
        x = _x_of(y)
        if x is not None:
            torsion = _times(_GROUP_ORDER, (x, y))
            multiples = [_times(number, torsion) for number in range(8)]
            found = multiples if len(set(multiples)) == 8 else found
        y += 1
    return found


def encodings(point: Point) -> list[str]:
    """Return all encodings of a point, also those that are not canonical, as base64url."""
    x, y = point
    signs = (0, 1) if x == 0 else (x & 1,)
    return [
        to_text((value | sign << 255).to_bytes(32, "little"))
        for value in (y, y + _P)
        if value < 2**255
        for sign in signs
    ]


IDENTITY = to_text((1).to_bytes(32, "little"))
"""The neutral element as a key."""
ANY_TEXT_SIGNATURE = to_text((1).to_bytes(32, "little") + bytes(32))
"""R is the neutral element, S is 0: valid for every text under the key `IDENTITY`."""


def library_accepts(key: bytes, signature: bytes, text: bytes) -> bool:
    """Return whether the plain library verifies a signature."""
    try:
        Ed25519PublicKey.from_public_bytes(key).verify(signature, text)
    except InvalidSignature:
        return False
    return True


def _x_of(y: int) -> int | None:
    square = (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P
    x = pow(square, (_P + 3) // 8, _P)
    if (x * x - square) % _P:
        x = x * pow(2, (_P - 1) // 4, _P) % _P
    return None if (x * x - square) % _P else x


def _add(one: Point, two: Point) -> Point:
    (x1, y1), (x2, y2) = one, two
    term = _D * x1 * x2 * y1 * y2
    x = (x1 * y2 + x2 * y1) * pow(1 + term, -1, _P)
    y = (y1 * y2 + x1 * x2) * pow(1 - term, -1, _P)
    return x % _P, y % _P


def _times(factor: int, point: Point) -> Point:
    product = (0, 1)
    while factor:
        if factor & 1:
            product = _add(product, point)
        point = _add(point, point)
        factor >>= 1
    return product
