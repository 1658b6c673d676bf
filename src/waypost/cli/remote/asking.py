"""Who asks a served relay, for each of the things that can be asked."""

from waypost.cli.options import DEFAULT_URL, Where
from waypost.cli.remote.api import NOBODY, Api, Token
from waypost.cli.remote.credentials import CredentialMissing, Credentials
from waypost.cli.remote.failures import OPERATOR_WANTED, Speaker
from waypost.policy.subjects import validate_subject


class Asking:
    """The relay behind a URL, and everybody we can be there."""

    def __init__(self, where: Where) -> None:
        self.credentials = Credentials(where)
        self.api = Api(where.url or DEFAULT_URL)
        self.url = self.api.url

    def close(self) -> None:
        """Let go of the connection."""
        self.api.close()

    def operator(self) -> Token:
        """The operator. Raises `CredentialMissing` without a token."""
        token = self.operator_or_nobody()
        if token is NOBODY:
            raise CredentialMissing(OPERATOR_WANTED)
        return token

    def operator_or_nobody(self) -> Token:
        """The operator, if there is a token; else `NOBODY`."""
        text = self.credentials.operator_token()
        return NOBODY if text is None else Token(Speaker.OPERATOR, text)

    def reader(self, subject: str) -> Token:
        """Whoever may read the mailbox of `subject`: its agent, or the operator."""
        validate_subject(subject)
        token = self.operator_or_nobody()
        if token is not NOBODY and not self.credentials.names_key_of(subject):
            return token
        return self.api.log_in(self.credentials.require_identity(subject))
