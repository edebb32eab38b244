"""Metrics of a status, as the node of that role exposes them."""

from __future__ import annotations

from typing import Any

from levelcast.node.metrics import exposition
from levelcast.node.roles import ROLES


def metrics_of(status: dict[str, Any]) -> str:
    role = ROLES[status["role"]]
    return exposition(status, role.METRICS, role.STATE)
