"""A relay behind a URL, from the command line: over HTTP, and as an agent that is connected."""
