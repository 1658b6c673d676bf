"""The policy run over history again: what would have been decided under other settings?

    senders.py    by sender        rate limits                                    Python, sorted
    pairs.py      by pair          who wrote to whom last, hence tiers            native
    inboxes.py    by recipient     caps, quotas, breakers, budgets, evictions     Python, sorted

`settled.py` finds, from the numbers that the relay wrote down with each arrival, whom other
settings cannot touch; only the rest goes that way. In between, `keys.py` and `moved.py` keep on the
driver who that is. The rules are in docs/backtest.md.
"""
