"""Plotting: `style` for files drawn by matplotlib; `svg` and `html` for the self-contained pages of the report.

Imports `extras`. Imported by `planner`, `sim`, `pipeline` and the benchmarks.
"""
