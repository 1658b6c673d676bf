"""Mailboxes as files: what people and other processes can look at and drop into."""
