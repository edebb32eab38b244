"""Options that several `levelcast plan` commands share, and errors in one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from levelcast.planner.files import read_weights
from levelcast.planner.model import Curve, PlanError, Weights

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
Alpha = Annotated[
    str | None,
    typer.Option(
        metavar="A", help="What it costs to drop a message by its session: a number, or 0.4+4.8/h.", show_default="1"
    ),
]
Beta = Annotated[
    str | None, typer.Option(metavar="B", help="What it costs to drop a message by its flow.", show_default="1")
]
Aggregation = Annotated[
    float | None,
    typer.Option("--aggregation", metavar="H", min=1, help="h: messages to a packet.", show_default="the file's, or 8"),
]
WeightsFile = Annotated[
    Path | None,
    typer.Option(
        "--weights", metavar="FILE", help="Alpha and beta as `python -m benchmarks filtering` measured them.",
        show_default="none",
    ),
]  # fmt: skip
Seed = Annotated[int, typer.Option(min=0, help="The same seed gives the same result.")]

_AGGREGATION = 8.0
"""TH's."""


def weights_of(alpha: str | None, beta: str | None, aggregation: float | None, file: Path | None) -> Weights:
    """What the options say."""
    if file is None:
        h = _AGGREGATION if aggregation is None else aggregation
        return Weights(*(Curve.parse("1" if text is None else text).at(h) for text in (alpha, beta)))
    if alpha is not None or beta is not None:
        raise PlanError("--weights gives both alpha and beta: leave out --alpha and --beta")
    measured = read_weights(file)
    h = measured.aggregation if aggregation is None else aggregation
    return Weights(measured.alpha.at(h), measured.beta.at(h))
