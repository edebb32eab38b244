"""`python -m levelcast` is the command `levelcast`."""

from levelcast.cli.main import run

run()
