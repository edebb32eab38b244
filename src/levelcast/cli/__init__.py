"""The `levelcast` command: reads arguments, calls the packages below, prints what they found.

May import every package except `web`. Nothing imports it but `levelcast.__main__`.
"""
