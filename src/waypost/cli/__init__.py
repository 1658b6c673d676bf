"""The command line: what people type.

`commands` parse arguments and choose what to show. `target` is what they can ask of a relay;
`directory` answers from a data directory, `served` from afar. `serving` runs a relay for others.
`rendering` turns facts into text. Nothing here is imported by anything else.
"""
