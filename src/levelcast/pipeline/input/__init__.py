"""Inputs of the lake: tapes (`tapes`, `tape_rows`, `tape_source`), files of trades, release logs, probes."""
