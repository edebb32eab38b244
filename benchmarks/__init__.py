"""Measure performance: `python -m benchmarks [name ...] [--quick] [--out DIR]`, or `make bench`.

Each benchmark prints its result, the peer or limit and the ratio, all from one run, with CPU and wall time, because the
machines are shared. `docs/benchmarks.md` lists all results, and `docs/benchmarks/` describes each benchmark.
"""
