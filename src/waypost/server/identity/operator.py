"""The operator's token: whoever can read `<data>/operator-token` may run the relay.

Made at the first start; put another into the file, or delete it, to change it at the next start.
"""

import hmac
from pathlib import Path

from waypost.server.identity.secret_files import keep_secret


class OperatorToken:
    """The secret by which the operator is known."""

    def __init__(self, secret: str) -> None:
        self._secret = secret.encode()

    @classmethod
    def open(cls, path: Path) -> "OperatorToken":
        """The token in `path`, made first if there is none. Raises `SecretUnusable`."""
        return cls(keep_secret(path))

    def matches(self, token: str) -> bool:
        """Whether `token` is the operator's, in a time that tells nothing about it."""
        given: object = token
        if not isinstance(given, str):
            return False
        return hmac.compare_digest(given.encode(errors="backslashreplace"), self._secret)
