"""The lake: Delta tables, their schema, the log, quarantine."""
