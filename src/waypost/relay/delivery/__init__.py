"""Messages on their way: in, through the mailboxes, and out."""
