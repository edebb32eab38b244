"""Jobs: `load` input in batches, `refresh` derived tables, and `stream` to do both continuously."""
