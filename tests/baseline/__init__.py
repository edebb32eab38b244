"""Recorded results of an earlier version: hashes of fixed histories, and files that must stay readable."""
