"""The command line.

`commands` parse arguments; `backend` is the interface they call, implemented by `local` on a data
directory and by `remote` on a served relay; `results` are its types, and `rendering` turns them
into text. `server_process` runs `waypost serve`. No other package imports this one.
"""
