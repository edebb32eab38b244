"""Actions of an operator on a running network: membership and channel plans as records of the sequence."""
