"""REMEMBERS: the asyncio runtime. It applies the policy live and journals every decision.

Read `relay.py` for the public interface, `delivery/publish.py` for the path of one message,
`state/ledger.py` for how a decision becomes durable, `state/relay_state.py` for the state that
the journal's events produce, `state/recovery.py` for how a data directory is opened.
"""
