"""Verification of a data directory: journal, index and mailboxes against each other."""
