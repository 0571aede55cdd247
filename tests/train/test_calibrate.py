"""The threshold, the noise test and the reliability curve, on made-up probabilities."""

from __future__ import annotations

import math
import random

import pytest

from excise_integrations import InvalidInputError
from excise_integrations.train.calibrate import calibrate, fit_temperature, noise_test, reliability


def test_the_default_is_kept_where_youdens_j_is_flat() -> None:
    found = calibrate([0.999] * 50, [0.01] * 50, {"plain": [0.02] * 100}, budgets={"plain": 0.01})
    assert found.threshold == 0.76
    assert found.youden.inert
    assert 0.76 in found.admissible


def test_false_firing_rules_thresholds_out() -> None:
    plain = [0.8] * 5 + [0.1] * 95
    found = calibrate([0.99] * 50, [0.01] * 50, {"plain": plain}, budgets={"plain": 0.02})
    assert min(found.admissible) >= 0.8
    assert found.threshold >= 0.8
    assert found.false_firing["plain"]["0.5"] == pytest.approx(0.05)


def test_no_admissible_threshold_takes_the_highest_and_says_so() -> None:
    found = calibrate([0.999], [0.0], {"plain": [0.999] * 10}, budgets={"plain": 0.0})
    assert found.threshold == 0.99
    assert "no threshold" in found.reason


def test_an_active_constant_moves_to_the_plateau() -> None:
    positives = [0.62 + 0.001 * i for i in range(200)]
    found = calibrate(positives, [0.2] * 200, {"plain": [0.0] * 100}, budgets={"plain": 0.01})
    assert not found.youden.inert
    assert found.threshold == 0.6


def test_the_noise_test_compares_spread_with_twice_the_standard_error() -> None:
    flat = noise_test({0.1: 0.50, 0.2: 0.51}, 100)
    assert flat.inert
    assert flat.noise == pytest.approx(2 * math.sqrt(0.51 * 0.49 / 100))
    assert not noise_test({0.1: 0.2, 0.2: 0.8}, 100).inert
    with pytest.raises(InvalidInputError):
        noise_test({}, 10)


def test_reliability_measures_the_gap() -> None:
    perfect = reliability([0.0, 0.0, 1.0, 1.0], [0, 0, 1, 1])
    assert perfect.expected_error == 0.0
    assert reliability([0.9, 0.9], [0, 0]).expected_error == pytest.approx(0.9)
    with pytest.raises(InvalidInputError):
        reliability([0.5], [])


def test_overconfident_logits_want_a_temperature_above_one() -> None:
    rng = random.Random(0)
    logits = [rng.choice([-6.0, 6.0]) for _ in range(400)]
    # Right three times in four, although the logits say 0.998.
    labels = [int((z > 0) == (rng.random() < 0.75)) for z in logits]
    assert fit_temperature(logits, labels) > 3.0
