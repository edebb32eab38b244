"""The network matrix: delay and loss between sites (`tables`), the `job`, and the `file` that a network includes."""
