"""The relay as MCP tools: a model in an MCP host sends and reads messages through them.

    model ── MCP ── tools ── connection ── waypost.client ── a served relay
                      │          └ inbox: delivered messages that are not acknowledged yet
                      └ fencing, instructions: quoting of untrusted text, advice on rejections

Rule 1  One process is one agent: it connects on start and fetches the stored messages.
Rule 2  A message leaves its mailbox when the model acknowledges it, and not before.
Rule 3  Text of other agents is shown inside a fence that it cannot close, and marked as untrusted.
        Their names are quoted, and ids that they chose are replaced.
Rule 4  A rejection is an instruction: the reason, how long to wait, what to do instead.
Rule 5  Only the protocol goes to stdout.

Uses the relay through `waypost.client` and its HTTP interface; imports neither relay nor server.
"""
