"""What `levelcast demo` plays: `stage` is its network, `show` the run, `customers` those who listen, `outcome` the end.

Imports the rest of `net`; imported by `cli` alone.
"""
