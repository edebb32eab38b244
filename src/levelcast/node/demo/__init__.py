"""What `levelcast demo` plays: `stage` is its network, `show` the run, `customers` those who listen, `outcome` the end.

Imports the rest of `node`; imported by `cli` alone.
"""
