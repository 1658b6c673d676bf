"""Where the nodes of a relay are, and which of them an agent talks to now.

Rule 1  An agent talks to the addresses it was given, and to other ports of their hosts. A relay
        that could send it anywhere else could have it probe the networks that the agent is in.
Rule 2  A connection with TLS is never followed by one without.
Rule 3  A node that does not answer is followed by the next; after the last comes the first.
Rule 4  Moves in a row without a welcome are bounded: nodes that send an agent to each other are
        tried again later, with the delay of a lost connection.
"""

from waypost.client.address import Address, parse_address, parse_addresses
from waypost.client.errors import CannotConnect
from waypost.policy.errors import InvalidInput

MOVES_MAX = 5


class Route:
    """The addresses of one relay. `current` is the one to connect to next."""

    def __init__(self, given: tuple[Address, ...]) -> None:
        self._given = given
        self._next = 0
        self._moves = 0
        self.current = given[0]

    @classmethod
    def parse(cls, urls: str) -> "Route":
        """Return the route to a relay at one URL, or at several separated by commas.

        Raises `InvalidInput`.
        """
        return cls(parse_addresses(urls))

    @property
    def urls(self) -> str:
        """The given addresses as HTTP URLs, separated by commas."""
        return ",".join(one.http_url for one in self._given)

    @property
    def given_count(self) -> int:
        """How many addresses were given."""
        return len(self._given)

    def follow(self, url: str) -> bool:
        """Go to `url`, where the relay says that it serves the agent; return False after too many
        moves in a row.

        Raises `CannotConnect` for an address that the agent was not given.
        """
        try:
            address = parse_address(url)
        except InvalidInput as problem:
            raise CannotConnect(
                f"{self.current.uri} sent this agent elsewhere: {problem}"
            ) from None
        if not any(_may_follow(one, address) for one in self._given):
            raise CannotConnect(
                f"{self.current.uri} sent this agent to {address.uri}, which it was not given: if"
                " that is a node of the relay, name both, separated by a comma"
            )
        self._moves += 1
        if self._moves > MOVES_MAX:
            self.give_up()
            return False
        self.current = address
        return True

    def give_up(self) -> None:
        """Go to the next of the given addresses, because the current one does not serve."""
        self._moves = 0
        self._next = (self._next + 1) % len(self._given)
        self.current = self._given[self._next]

    def arrived(self) -> None:
        """Record that the current node serves the agent."""
        self._moves = 0


def _may_follow(given: Address, address: Address) -> bool:
    keeps_tls = address.uri.startswith("wss:") or given.uri.startswith("ws:")
    return keeps_tls and given.host == address.host
