"""The network matrix: delay and loss between sites."""
