"""The command line: what people type.

`commands` parse arguments and choose what to show, `directory` does the work on a data
directory, `rendering` turns facts into text. Nothing here is imported by anything else.
"""
