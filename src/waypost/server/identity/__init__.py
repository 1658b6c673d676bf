"""Identity of callers: keys bound to subjects, challenges and tokens; start at `authenticator`."""
