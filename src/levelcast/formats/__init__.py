"""What is traded, and by which rules: for now real trades out of files, and made-up ones where there are none.

Imports `records` and `network`. Imported by `net` and `sim`.
"""
