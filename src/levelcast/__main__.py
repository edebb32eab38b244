"""Run the command `levelcast` as `python -m levelcast`."""

from levelcast.cli.main import run

run()
