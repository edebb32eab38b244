"""Reliable multicast among members of whom fewer than a third may lie (MR): chain multicast and its turns.

Protocol code without I/O. `docs/byzantine.md` has the rules; each module head names those that it implements.
"""
