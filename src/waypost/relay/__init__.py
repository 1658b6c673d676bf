"""REMEMBERS: the asyncio runtime. It applies the policy live and keeps every decision.

Read `relay.py` for what callers use, `publishing.py` for the way of one message, `ledger.py` for
how a decision becomes durable, `state.py` for what the journal adds up to, `recovery.py` for how
a directory is opened again.
"""
