"""The compiled planner against its twin in Python: the same answers, bit for bit."""

from __future__ import annotations

import os
import subprocess
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from levelcast.native import planner, pure_planner
from levelcast.planner import annealing
from levelcast.planner.make import make_plan
from levelcast.planner.model import Instance
from tests.conftest import lacking
from tests.plan_parts import random_instance

NO_INTS, NO_LONGS = np.empty(0, np.int32), np.empty(0, np.int64)


@pytest.fixture(scope="module")
def compiled() -> ModuleType:
    try:
        from levelcast.native import _planner  # type: ignore[attr-defined]
    except ImportError:
        lacking("the compiled planner: a C compiler at installation")
    module: ModuleType = _planner
    return module


def run_anneal(module: Any, instance: Instance, label: np.ndarray, **given: Any) -> tuple[list[int], int]:
    label = label.astype(np.int32).copy()
    options = {
        "items": np.arange(instance.n_flows, dtype=np.int32), "groups": 3, "slots": 4, "most": 9, "alpha": 1.0,
        "beta": 0.7, "temperatures": np.geomspace(2.0, 0.05, 12), "seed": 7, "session_cap": 1e300, "group_cap": 1e300,
        "apart_start": NO_LONGS, "apart": NO_INTS, "home": NO_INTS, "weight": NO_INTS, "penalty": 0.0, "budget": 0,
    } | given  # fmt: skip
    moves = module.anneal(
        instance.start, instance.users, instance.rates, options.pop("items"), label, instance.n_users, *options.values()
    )
    return label.tolist(), moves


CASES: dict[str, dict[str, Any]] = {
    "two levels": {},
    "cold": {"temperatures": np.zeros(30)},
    "one level": {"groups": 1, "slots": 6, "most": 6},
    "one level, more than a block": {"groups": 1, "slots": 70, "most": 5},
    "few items": {"items": np.array([0, 3, 5, 8], np.int32)},
    "capacities": {"session_cap": 2.5, "group_cap": 6.0},
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("placed", [False, True])
def test_anneal_gives_what_its_twin_gives(compiled: ModuleType, case: str, placed: bool) -> None:
    for seed in range(6):
        instance = random_instance(seed, flows=25, users=70)
        slots = CASES[case].get("groups", 3) * CASES[case].get("slots", 4)
        label = np.random.default_rng(seed).integers(min(slots, 9), size=25) if placed else np.full(25, -1)
        given = CASES[case] | {"seed": seed}
        assert run_anneal(compiled, instance, label, **given) == run_anneal(pure_planner, instance, label, **given)


def test_anneal_with_homes_and_items_apart_gives_what_its_twin_gives(compiled: ModuleType) -> None:
    for seed in range(8):
        random = np.random.default_rng(seed)
        instance = random_instance(seed, flows=20, users=12)
        home = random.integers(-1, 9, size=20).astype(np.int32)
        given = {
            "home": home, "weight": random.integers(1, 4, size=20).astype(np.int32), "penalty": 0.1 * (seed % 3),
            "budget": 5 * seed, "apart_start": np.minimum(np.arange(21), 3).astype(np.int64),
            "apart": np.array([1, 2, 0], np.int32), "temperatures": np.zeros(5) if seed % 2 else np.full(5, 0.3),
        }  # fmt: skip
        assert run_anneal(compiled, instance, home, **given) == run_anneal(pure_planner, instance, home, **given)


def test_no_more_weight_leaves_home_than_is_allowed(compiled: ModuleType) -> None:
    instance = random_instance(3, flows=40, users=20)
    home = np.random.default_rng(3).integers(9, size=40).astype(np.int32)
    weight = np.ones(40, np.int32)
    for budget in (0, 1, 7):
        label, _ = run_anneal(compiled, instance, home, home=home, weight=weight, budget=budget)
        assert int((np.array(label) != home).sum()) <= budget


def test_a_user_of_very_many_items_is_never_lost(compiled: ModuleType) -> None:
    instance = Instance(
        np.ones(66_000), np.arange(66_001, dtype=np.int64), np.zeros(66_000, np.int32), 1
    )  # more items than a count holds
    label, _ = run_anneal(compiled, instance, np.zeros(66_000), groups=1, slots=2, most=2, temperatures=np.zeros(1))
    assert set(label) <= {0, 1}


@pytest.mark.parametrize("users", [5, 64, 200])
def test_members_and_merges_are_those_of_the_twin(compiled: ModuleType, users: int) -> None:
    for seed in range(5):
        instance = random_instance(seed, flows=30, users=users)
        label = np.random.default_rng(seed).integers(-1, 12, size=30).astype(np.int32)
        bits = [np.zeros((12, (users + 63) // 64), np.uint64) for _ in range(2)]
        for module, each in zip((compiled, pure_planner), bits, strict=True):
            module.members(instance.start, instance.users, label, users, each)
        assert (bits[0] == bits[1]).all()
        rate, group = np.random.default_rng(seed).random(12), np.arange(12, dtype=np.int32) % 3
        into = [np.empty(12, np.int32) for _ in range(2)]
        for left in (0, 3, 5, 12):
            for module, merged in zip((compiled, pure_planner), into, strict=True):
                module.merge_down(bits[0], rate, group, users, 3, left, merged)
            assert into[0].tolist() == into[1].tolist()
            assert len(set(into[0].tolist())) == max(left, 3)


@pytest.mark.parametrize(
    "given",
    [{"groups": 0}, {"slots": 0}, {"items": np.array([99], np.int32)}, {"home": np.zeros(3, np.int32)}],
)
def test_broken_arguments_are_refused(compiled: ModuleType, given: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        run_anneal(compiled, random_instance(1), np.zeros(12), **given)
    with pytest.raises(ValueError, match="label"):
        run_anneal(compiled, random_instance(1), np.full(12, 99))


@pytest.mark.parametrize(("sessions", "groups"), [(6, 2), (6, 6), (20, 3)])
def test_a_whole_search_gives_the_same_plan(
    compiled: ModuleType, monkeypatch: pytest.MonkeyPatch, sessions: int, groups: int
) -> None:
    monkeypatch.setattr(annealing, "_MOST", dict.fromkeys(annealing.Effort, 20))
    instance = random_instance(2, flows=24, users=10)
    plans = []
    for module in (compiled, pure_planner):
        for name in ("anneal", "members", "merge_down"):
            monkeypatch.setattr(planner, name, getattr(module, name))
        plans.append(make_plan(instance, sessions, groups, seed=1))
    assert plans[0].session.tolist() == plans[1].session.tolist()
    assert plans[0].group.tolist() == plans[1].group.tolist()


def test_pure_python_can_be_asked_for() -> None:
    code = "from levelcast.native import planner; print(planner.COMPILED)"
    environment = {**os.environ, "LEVELCAST_PURE": "1"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
