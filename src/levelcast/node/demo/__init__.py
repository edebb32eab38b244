"""Run `levelcast demo`: `network` writes its file, `run` controls it, `subscribers` read it, `outcome` checks it.

Imports the rest of `node`. Imported only by `cli`.
"""
