"""Common base of all ordering protocols: the contract with a driver, effects, frames, history, holdings, journal image.

Sans I/O. Imports `wire`, `timing` and `native`. Every higher layer may import it.
"""
