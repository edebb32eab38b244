"""Inputs of the lake: tapes, files of trades, release logs, probes."""
