"""Names of mailbox directories: each belongs to one subject.

The usual name is short, and another subject can have the same one: a stranger can search for such a
subject. Then the second gets a long name, which no other subject can have.

Rule 1  Two mailboxes never have the same name.
Rule 2  A mailbox keeps its name as long as it exists; the name is journaled unless it is the usual.
"""

from waypost.relay.data_dir import endpoint_hash, long_endpoint_hash
from waypost.relay.state.mailbox import Mailbox


class Directories:
    """The mailbox of each directory."""

    def __init__(self) -> None:
        self._mailboxes: dict[str, Mailbox] = {}

    def create_mailbox(self, subject: str) -> Mailbox:
        """Return a new mailbox with the usual name, or with the long one if that is taken."""
        name = endpoint_hash(subject)
        if name in self._mailboxes:
            name = long_endpoint_hash(subject)
        mailbox = self._mailboxes[name] = Mailbox(subject, name)
        return mailbox

    def get(self, name: str) -> Mailbox | None:
        """Return the mailbox with this name, or None."""
        return self._mailboxes.get(name)

    def restore(self, mailbox: Mailbox, journaled: str) -> None:
        """Give a mailbox the name it had when it was registered; "" is the usual one.

        An unregistered mailbox that has got it meanwhile, because the journal no longer holds its
        registration, gets its long name; a registered one keeps it.
        """
        long = long_endpoint_hash(mailbox.subject)
        name = long if journaled == long else endpoint_hash(mailbox.subject)
        holder = self._mailboxes.get(name)
        if holder is mailbox or (holder is not None and holder.registered):
            return
        if holder is not None:
            self._rename(holder, long_endpoint_hash(holder.subject))
        self._rename(mailbox, name)

    def remove(self, mailbox: Mailbox) -> None:
        """Free the name of a mailbox that no longer exists."""
        self._mailboxes.pop(mailbox.hash, None)

    def _rename(self, mailbox: Mailbox, name: str) -> None:
        self.remove(mailbox)
        mailbox.hash = name
        self._mailboxes[name] = mailbox


def journaled_directory(mailbox: Mailbox) -> str:
    """Return the name of a mailbox's directory as it is journaled; "" is the usual one."""
    return "" if mailbox.hash == endpoint_hash(mailbox.subject) else mailbox.hash
