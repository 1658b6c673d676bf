"""Looking a data directory over: journal, index and mailboxes, each against the others."""
