"""DECIDES: values in, values out. No I/O, no clock, no environment, no logging.

Every function returns the same result live, in a test, and in a replay years later, because time
and state are arguments. Only `admission` knows the order of the checks.
"""
