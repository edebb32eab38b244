"""What performance claims rest on: `python -m benchmarks [name ...] [--quick] [--out DIR]`, or `make bench`.

Each benchmark prints its figure, what the figure is compared with and the ratio, all from one run, with CPU time
beside wall time, because the machines are shared. `docs/benchmarks.md` says what each one measures.
"""
