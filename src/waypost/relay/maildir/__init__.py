"""Mailboxes as Maildir files, for people and other processes to read and drop into."""
