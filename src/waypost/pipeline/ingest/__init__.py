"""Two ways to read segments into a batch of `events`, which give the same rows.

`whole.py` reads whole segments with Arrow, one task each, where they and the lake lie in a file
system that Spark's Python shares, and leaves a journal with damage alone. `lines.py` reads line by
line with Spark's own readers: from anywhere, and whatever the lines hold.
"""
