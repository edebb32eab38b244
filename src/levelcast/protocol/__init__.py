"""What all ordering protocols share: the contract with a driver, effects, frames, history, holdings, journal image.

Sans I/O. It may import `wire`, `timing`, `records` and `native`.
"""
