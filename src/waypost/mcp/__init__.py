"""A relay as tools: what a program that speaks MCP, and the model in it, sends and reads through.

    model ── MCP ── tools ── presence ── waypost.client ── a served relay
                      │          └ desk: what was delivered and not acknowledged yet
                      └ fences, instructions: what others wrote, and what a refusal asks for

Rule 1  One process is one agent: it connects when it starts, and reads what came meanwhile.
Rule 2  A message leaves its mailbox when the model acknowledges it, and not before.
Rule 3  What others wrote is shown inside a fence that it cannot close, and called untrusted.
Rule 4  A refusal is an instruction: why, how long to wait, what to do instead.
Rule 5  Only the protocol goes to stdout.

Speaks to a relay through `waypost.client` and its HTTP interface; knows neither relay nor server.
"""
