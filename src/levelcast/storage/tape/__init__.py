"""The tape of a receiver on disk: write, read, index, verify, compare, certify."""
