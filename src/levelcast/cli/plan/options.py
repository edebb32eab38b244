"""Define options of several `levelcast plan` commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from levelcast.cli.options import option
from levelcast.planner.files import read_weights
from levelcast.planner.model import Curve, PlanError, Weights

Alpha = Annotated[
    str | None,
    option("Cost of dropping a message by its session: a number, e.g. 2, or 0.4+4.8/h.", metavar="A", unset="1"),
]
Beta = Annotated[
    str | None, option("Cost of dropping a message by its flow, in the form of --alpha.", metavar="B", unset="1")
]
Aggregation = Annotated[
    float | None, option("h: messages per packet.", "--aggregation", metavar="H", min=1, unset="the file's, or 8")
]
WeightsFile = Annotated[
    Path | None,
    option(
        "Alpha and beta as measured by `python -m benchmarks filtering`.", "--weights", metavar="FILE", unset="none"
    ),
]
Seed = Annotated[int, option("Random seed; the same seed gives the same result.", min=0)]

_AGGREGATION = 8.0
"""Value of TH."""


def weights_of(alpha: str | None, beta: str | None, aggregation: float | None, file: Path | None) -> Weights:
    """Return the weights that the options specify."""
    if file is None:
        h = _AGGREGATION if aggregation is None else aggregation
        return Weights(*(Curve.parse("1" if text is None else text).at(h) for text in (alpha, beta)))
    if alpha is not None or beta is not None:
        raise PlanError("--weights contains both alpha and beta; omit --alpha and --beta")
    measured = read_weights(file)
    h = measured.aggregation if aggregation is None else aggregation
    return Weights(measured.alpha.at(h), measured.beta.at(h))
