"""Who asks a served relay, for each of the things that can be asked."""

from waypost.cli.options import DEFAULT_URL, Where
from waypost.cli.remote.credentials import CredentialMissing, Credentials
from waypost.client.http import NO_TOKEN, OPERATOR_TOKEN_NEEDED, HttpClient, Role, Token
from waypost.policy.subjects import validate_subject


class Asking:
    """The relay behind a URL, and everybody we can be there."""

    def __init__(self, where: Where) -> None:
        self.credentials = Credentials(where)
        self.api = HttpClient(where.url or DEFAULT_URL)
        self.url = self.api.url

    def close(self) -> None:
        """Let go of the connection."""
        self.api.close()

    def operator(self) -> Token:
        """The operator. Raises `CredentialMissing` without a token."""
        token = self.operator_or_nobody()
        if token is NO_TOKEN:
            raise CredentialMissing(OPERATOR_TOKEN_NEEDED)
        return token

    def operator_or_nobody(self) -> Token:
        """The operator, if there is a token; else `NOBODY`."""
        text = self.credentials.operator_token()
        return NO_TOKEN if text is None else Token(Role.OPERATOR, text)

    def reader(self, subject: str) -> Token:
        """Whoever may read the mailbox of `subject`: its agent, or the operator."""
        validate_subject(subject)
        token = self.operator_or_nobody()
        if token is not NO_TOKEN and not self.credentials.names_key_of(subject):
            return token
        return self.api.log_in(self.credentials.require_identity(subject))
