"""REPLAYS: the journal becomes tables, reports and answers to "what if", with Spark.

Rule 1  DataFrame API only: every job runs in this process, on a cluster, and over Spark Connect.
Rule 2  Built-ins before Python. The replay runs the policy's own code, and is the one exception.
Rule 3  A lake changes in one commit at the end of a job; who reads it meanwhile sees the old one.
"""
