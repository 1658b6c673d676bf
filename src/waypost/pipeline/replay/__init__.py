"""The replay: the policy applied to recorded arrivals again, under other settings.

    screening.py     finds the senders and endpoints that other settings can affect      native
    rate_stage.py    by sender       rate limits                                         Python
    tier_stage.py    by pair         tiers, from who last wrote to whom                  native
    inbox_stage.py   by recipient    caps, quotas, breakers, budgets, evictions          Python

`backtest.py` runs them in this order. The rules are in docs/backtest.md.
"""
