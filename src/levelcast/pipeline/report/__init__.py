"""The report on a day of the lake as one HTML page (`page`), and the drawings in it (`svg`)."""
