"""DECIDES: values in, values out. No I/O, no clock, no environment, no logging.

Every function here gives the same answer live, in a test, and in a replay years later, because
the time and the state it judges by are arguments. `admission` alone knows the order of checks.
"""
