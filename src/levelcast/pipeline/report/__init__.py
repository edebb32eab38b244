"""The report on a day of the lake as one HTML page (`page`), and its sections."""
