"""The `levelcast` command: parses arguments, calls the other packages, prints their results.

May import every package except `web`. Only `levelcast.__main__` imports it.
"""
