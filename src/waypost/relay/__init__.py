"""REMEMBERS: the asyncio runtime. It applies the policy live and keeps every decision.

Read `relay.py` for what callers use, `traffic/publishing.py` for the way of one message,
`record/ledger.py` for how a decision becomes durable, `memory/state.py` for what the journal adds
up to, `memory/recovery.py` for how a directory is opened again.
"""
