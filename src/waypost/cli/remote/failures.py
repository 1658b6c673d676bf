"""What goes wrong between the command line and a served relay, and what a person can do about it.

WaypostError
└── RemoteError           the relay is away, does not let us in, or cannot do it

What can never be accepted is `InvalidInput`, as everywhere.
"""

import ssl
from enum import StrEnum

import httpx
import msgspec

from waypost.policy.errors import InvalidInput, WaypostError
from waypost.wire.problems import Problem


class RemoteError(WaypostError):
    """A served relay cannot be reached, or does not do what was asked. `status` is HTTP's."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status


class Speaker(StrEnum):
    """As whom a request was made."""

    NOBODY = "nobody"
    AGENT = "agent"
    OPERATOR = "operator"


OPERATOR_WANTED = (
    "this needs the operator's token: give --operator-token-file with the file operator-token of"
    " the relay's data directory (or WAYPOST_OPERATOR_TOKEN_FILE, or WAYPOST_OPERATOR_TOKEN)"
)


def unreachable(url: str, problem: Exception) -> RemoteError:
    """Why there was no answer at all."""
    if isinstance(problem, httpx.TimeoutException):
        return RemoteError(f"the relay at {url} does not answer in time: try again later")
    cause = _tls_cause(problem)
    if isinstance(cause, ssl.SSLCertVerificationError):
        return RemoteError(
            f"the certificate of {url} cannot be trusted ({cause.verify_message}): if it is"
            " the relay's own, name it with SSL_CERT_FILE=FILE"
        )
    if cause is not None:
        return RemoteError(
            f"{url} does not speak TLS as expected ({cause.reason or cause}): is it http://"
            " instead of https://?"
        )
    if isinstance(problem, httpx.RemoteProtocolError):
        return RemoteError(f"what answers at {url} is not a relay: is it https:// instead?")
    return RemoteError(
        f"no relay answers at {url}: start one with 'waypost serve', or name another with --url"
        f" ({_words(problem)})"
    )


def rejection(url: str, response: httpx.Response, speaker: Speaker) -> WaypostError:
    """What an answer other than the one that was hoped for means."""
    status = response.status_code
    try:
        problem = msgspec.json.decode(response.content, type=Problem)
    except msgspec.DecodeError:
        return RemoteError(
            f"what answers at {url} is not a relay (it says {status}): check --url", status
        )
    match status:
        case 400 | 413:
            return InvalidInput(problem.error)
        case 401:
            return RemoteError(_not_known(url, problem, speaker), status)
        case 403:
            return RemoteError(_forbidden(url, problem, speaker), status)
        case 429 | 503:
            wait = problem.retry_after_ms
            later = f"try again in {max(1, round(wait / 1000)):,} s" if wait else "try again later"
            return RemoteError(f"not now: {problem.error}; {later}", status)
        case _:
            return RemoteError(problem.error, status)


def _not_known(url: str, problem: Problem, speaker: Speaker) -> str:
    match speaker:
        case Speaker.OPERATOR:
            return (
                f"the relay at {url} does not know this operator's token: the right one is in the"
                " file operator-token of its data directory"
            )
        case Speaker.AGENT:
            return (
                f"the relay at {url} does not accept the proof of these keys ({problem.error}):"
                " connect to it under its own name, not through a proxy that changes it"
            )
        case Speaker.NOBODY:
            return OPERATOR_WANTED


def _forbidden(url: str, problem: Problem, speaker: Speaker) -> str:
    if problem.reason == "subject_taken":
        return (
            f"at {url} {problem.error}: use the key file it was first used with (--key), or be"
            " somebody else"
        )
    if "operator" in problem.error:
        return OPERATOR_WANTED
    if speaker is Speaker.AGENT:
        return f"{problem.error}: give its own keys with --key, or the operator's token"
    return problem.error


def _tls_cause(problem: BaseException | None) -> ssl.SSLError | None:
    while problem is not None:
        if isinstance(problem, ssl.SSLError):
            return problem
        problem = problem.__cause__ or problem.__context__
    return None


def _words(problem: Exception) -> str:
    return str(problem) or type(problem).__name__
