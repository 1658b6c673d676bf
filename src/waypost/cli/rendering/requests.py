"""The outcomes of requests: replies on stdout, failures on stderr, a summary of several."""

from waypost.cli.rendering import messages
from waypost.cli.rendering.console import note, plural, print_json, print_json_line
from waypost.cli.results import ReceivedMessage, SendReport
from waypost.client.errors import RequestBlocked, RequestFailed, RequestTimedOut


class RequestOutcomes:
    """Prints each outcome of `total` requests, and counts them by kind."""

    def __init__(self, total: int, *, json: bool) -> None:
        self.failed = 0
        self.rejected = 0
        self._answered = 0
        self._blocked = 0
        self._total = total
        self._json = json

    def add(
        self,
        outcome: ReceivedMessage | SendReport | RequestBlocked | RequestFailed | RequestTimedOut,
    ) -> None:
        """Print and count one outcome."""
        if isinstance(outcome, RequestBlocked | RequestFailed | RequestTimedOut):
            self.failed += 1
            self._blocked += isinstance(outcome, RequestBlocked)
            note(str(outcome))
            return
        if isinstance(outcome, SendReport):
            self.rejected += 1
        else:
            self._answered += 1
        if self._json:
            (print_json if self._total == 1 else print_json_line)(outcome)
        elif isinstance(outcome, SendReport):
            messages.show_send_report(outcome)
        else:
            messages.show_reply(outcome)

    def show_summary(self) -> None:
        """Note how many of several requests were answered, unless all were."""
        if self._total > 1 and self._answered < self._total:
            blocked = f", {self._blocked} blocked by the guard" if self._blocked else ""
            note(f"{self._answered} of {plural(self._total, 'request')} answered{blocked}")
