"""Operator actions on a running network: publish memberships and channel plans as records of the sequence."""
