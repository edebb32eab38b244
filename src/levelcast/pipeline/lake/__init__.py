"""The lake: Delta tables (`lake`), their `log` and `files`, the list of `tables`, their schema, quarantine."""
