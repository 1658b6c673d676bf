"""SPEAKS: what an agent's own process uses to talk to others.

Imports `policy` and `wire` only, never `relay`: an agent that talks to a relay elsewhere carries
no storage with it.
"""
