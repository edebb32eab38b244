"""The timing follows from the network by the rules of DESIGN §3, and each number says by which."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from levelcast.timing import derive as derive_module
from levelcast.timing import rules as timing_module
from levelcast.timing.derive import Given, Path, Shape, contradictions, derive
from levelcast.timing.rules import (
    FAULT_RATIO,
    REFUSED_ASKS,
    Mode,
    attempts_for,
    closed_form_ns,
    failure_ratio,
    liveness_bound_ns,
    liveness_terms,
    required_hold_ns,
)
from levelcast.units import show_ns

MS = 1_000_000

durations = st.integers(min_value=1, max_value=1000 * MS)
losses = st.floats(min_value=0.0, max_value=0.5)
modes: st.SearchStrategy[Mode] = st.sampled_from(["lockstep", "pipelined"])


@st.composite
def paths(draw: st.DrawFn) -> Path:
    return Path(
        delay_ns=draw(durations),
        loss_ratio=draw(losses),
        clock_error_ns=draw(st.integers(0, 10 * MS)),
        transmit_ns=draw(st.integers(0, 10 * MS)),
        process_ns=draw(st.integers(0, 50 * MS)),
        reach_ns=draw(durations),
    )


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    mode = draw(modes)
    members = draw(st.integers(1, 30))
    return Shape(
        mode=mode,
        slot_ns=None if mode == "lockstep" else draw(durations),
        witnesses=draw(st.integers(1, members)),
        members=members,
        servers=draw(st.integers(1, 5)),
        layers=draw(st.integers(0, 2)),
    )


def test_the_example_of_rule_6_is_5_1_s_by_the_rule_and_2_7_s_by_the_papers_closed_form() -> None:
    path = Path(delay_ns=375 * MS, loss_ratio=0.0, process_ns=30 * MS)
    shape = Shape("lockstep", slot_ns=None, witnesses=1, members=5, servers=1)
    derived = derive(path, shape, Given(attempts=3))
    assert derived.timing.late_ns == 375 * MS
    assert derived.timing.request_ns == 780 * MS
    assert derived.timing.recovery_ns == 5055 * MS
    assert derived.timing.hold_ns == 5055 * MS
    assert derived.timing.slot_ns == 5055 * MS
    assert derived.closed_form_ns == closed_form_ns(375 * MS, 30 * MS, 3) == 2715 * MS
    closed = next(number for number in derived.explained if number.symbol == "R (MS)")
    assert closed.text == "2.715 s"
    assert "2.34 s less than R" in closed.because


@given(durations, st.integers(0, 100 * MS), st.integers(1, 50))
def test_the_closed_form_drops_exactly_one_recovery_stage(late: int, handling: int, attempts: int) -> None:
    request = 2 * late + handling
    recovery = late + 2 * attempts * request
    assert recovery - closed_form_ns(late, handling, attempts) == attempts * request


@pytest.mark.parametrize(("loss", "attempts"), [(0.0, 1), (1e-12, 1), (0.001, 4), (0.01, 6), (0.05, 9)])
def test_attempts_follow_from_the_loss(loss: float, attempts: int) -> None:
    assert attempts_for(loss) == attempts


@given(losses, st.integers(2, 2000))
def test_attempts_are_the_fewest_with_less_than_one_fault_in_a_billion(loss: float, members: int) -> None:
    attempts = attempts_for(loss, members)
    chances = max(1.0, 2 * (members - 1) * loss)
    assert chances * failure_ratio(loss) ** attempts < FAULT_RATIO
    assert attempts == 1 or chances * failure_ratio(loss) ** (attempts - 1) >= FAULT_RATIO


@pytest.mark.parametrize("loss", [-0.1, 0.51, 1.0, float("nan")])
def test_no_attempts_are_derived_from_an_impossible_loss(loss: float) -> None:
    with pytest.raises(ValueError, match="cannot be derived"):
        attempts_for(loss)


def test_hold_time_of_the_paper_is_r_and_witnesses_add_the_time_to_hear_them() -> None:
    late, request, attempts, slot = 100 * MS, 210 * MS, 4, 50 * MS
    recovery = late + 2 * attempts * request
    hear = late + attempts * request
    assert required_hold_ns(slot, late, request, attempts, witnesses=1) == recovery
    assert required_hold_ns(slot, late, request, attempts, witnesses=3) == recovery + 3 * slot + hear
    two_layers = required_hold_ns(slot, late, request, attempts, witnesses=3, layers=2)
    assert two_layers == recovery + 3 * (3 * slot + hear)


@given(paths(), shapes())
def test_whatever_is_derived_contradicts_no_rule(path: Path, shape: Shape) -> None:
    derived = derive(path, shape)
    timing = derived.timing
    assert contradictions(derived, shape) == []
    assert timing.late_ns >= path.delay_ns + 2 * path.clock_error_ns
    assert timing.request_ns >= 2 * timing.late_ns + path.transmit_ns + path.process_ns
    assert timing.hold_ns >= timing.recovery_ns
    assert timing.mode == "pipelined" or timing.slot_ns >= timing.recovery_ns
    assert timing.lead_ns > timing.late_ns
    assert timing.backoff_ns > timing.join_ns + timing.lead_ns
    assert timing.ask_ns >= timing.recovery_ns
    assert timing.resend_ns > 2 * path.reach_ns


@given(paths(), shapes())
def test_every_number_of_a_timing_is_explained_with_its_value(path: Path, shape: Shape) -> None:
    derived = derive(path, shape)
    by_name = {number.name: number for number in derived.explained}
    assert len(by_name) == len(derived.explained)
    for name in ("slot", "late", "request", "hold", "join", "lead", "backoff", "ask", "resend", "recovery"):
        assert by_name[name].value == getattr(derived.timing, f"{name}_ns")
    assert by_name["attempts"].value == derived.timing.attempts
    assert all(number.rule and number.because and number.text for number in derived.explained)


def test_a_given_number_is_kept_and_its_contradiction_says_by_how_much() -> None:
    path = Path(delay_ns=375 * MS, loss_ratio=0.0, process_ns=30 * MS)
    shape = Shape("lockstep", slot_ns=2715 * MS, witnesses=1, members=5, servers=1)
    derived = derive(path, shape, Given(attempts=3, hold_ns=2715 * MS))
    assert derived.timing.hold_ns == 2715 * MS
    found = dict(contradictions(derived, shape))
    assert set(found) == {"slot", "hold"}
    assert "hold (Δ_A) is 2.715 s, 2.34 s too short: it must be at least 5.055 s" in found["hold"]
    assert "rule 4" in found["slot"]


def test_a_request_interval_shorter_than_a_round_trip_and_too_many_witnesses_are_contradictions() -> None:
    path = Path(delay_ns=100 * MS, loss_ratio=0.0)
    shape = Shape("pipelined", slot_ns=MS, witnesses=4, members=3, servers=1)
    derived = derive(path, shape, Given(request_ns=150 * MS))
    assert [found.field for found in contradictions(derived, shape)] == ["request", "witness"]


def test_a_pipelined_ring_needs_a_slot_length() -> None:
    with pytest.raises(ValueError, match="slot length"):
        derive(Path(MS, 0.0), Shape("pipelined", None, 1, 3, 1))


@given(paths(), shapes())
def test_the_liveness_bound_is_the_sum_of_its_terms_and_covers_detection_reformation_and_hold(
    path: Path, shape: Shape
) -> None:
    timing = derive(path, shape).timing
    terms = liveness_terms(timing, shape.members, shape.servers)
    bound = liveness_bound_ns(timing, shape.members, shape.servers)
    assert bound == sum(term.ns for term in terms)
    assert all(term.ns >= 0 and term.rule for term in terms)
    once = timing.recovery_ns + timing.ask_ns + timing.join_ns + timing.lead_ns
    assert bound >= 3 * once + timing.resend_ns + timing.hold_ns


def test_more_servers_members_or_catching_up_only_lengthen_the_liveness_bound() -> None:
    timing = derive(Path(50 * MS, 0.01), Shape("pipelined", 10 * MS, 2, 3, 2)).timing
    bound = liveness_bound_ns(timing, 3, 2)
    assert liveness_bound_ns(timing, 3, 3) == bound + 3 * 2 * timing.backoff_ns
    assert liveness_bound_ns(timing, 4, 2) > bound
    assert liveness_bound_ns(timing, 3, 2, catch_up_rounds=5) > bound
    assert liveness_bound_ns(timing, 3, 2, reformations=4) > bound
    assert liveness_bound_ns(timing, 3, 2, refused_asks=REFUSED_ASKS + 7) == bound + 7 * timing.ask_ns


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (300_000, "300 µs"),
        (35_600_000, "35.6 ms"),
        (5_055 * MS, "5.055 s"),
        (10_000 * MS, "10 s"),
    ],
)
def test_durations_read_well(ns: int, text: str) -> None:
    assert show_ns(ns) == text


@pytest.mark.parametrize("module", [timing_module, derive_module])
def test_the_examples_in_the_docstrings_run(module: object) -> None:
    result = doctest.testmod(module)  # type: ignore[arg-type]
    assert result.attempted > 0
    assert result.failed == 0
