"""The tables of a lake: each module is a name, a schema, and how its rows come about.

`registry.TABLES` has them in the order in which they are built.
"""
