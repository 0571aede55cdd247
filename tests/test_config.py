"""Settings: the paper's constants, their ranges, and a digest for the audit trail."""

from __future__ import annotations

import math
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import ValidationError

from excise_integrations import ExciseConfig


def test_the_paper_s_constants_are_the_defaults() -> None:
    config = ExciseConfig()
    assert (config.floor, config.cut_width, config.penalty_scale, config.removal_fraction) == (0.35, 0.5, 0.97, 0.6)
    assert (config.cap, config.min_shortlist, config.k) == (3, 4, 100)
    assert config.threshold is None
    assert (config.mode, config.removed, config.unit, config.on_error) == ("active", "drop", "passage", "raise")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("k", 0),
        ("threshold", -0.1),
        ("threshold", 1.1),
        ("floor", 1.1),
        ("cut_width", -0.1),
        ("penalty_scale", -1.0),
        ("removal_fraction", 1.1),
        ("topic_fraction", -0.1),
        ("cap", -1),
        ("total_cap", -1),
        ("min_shortlist", 0),
        ("absolute_cut", 2.0),
        ("demotion", "hard"),
        ("score_scale", "max"),
        ("guard_order", "random"),
        ("removed", "keep"),
        ("unit", "chapter"),
        ("mode", "off"),
        ("on_error", "ignore"),
        ("floor", math.nan),
        ("penalty_scale", math.nan),
        ("colour", "red"),
    ],
)
def test_values_out_of_range_and_unknown_names_are_refused(name: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=name):
        ExciseConfig(**{name: value})


@pytest.mark.parametrize("name", [n for n, f in ExciseConfig.model_fields.items() if "float" in str(f.annotation)])
@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_settings_are_finite(name: str, value: float) -> None:
    # λ · 0 would not be a number, and no candidate could be ranked.
    with pytest.raises(ValidationError, match=name):
        ExciseConfig(**{name: value})


def test_a_config_cannot_be_changed() -> None:
    config = ExciseConfig()
    with pytest.raises(ValidationError):
        config.cap = 4  # type: ignore[misc]


def test_the_digest_depends_on_every_setting_and_on_nothing_else() -> None:
    config = ExciseConfig()
    assert config.digest() == ExciseConfig().digest()
    assert len(config.digest()) == 12
    digests = {config.digest()}
    for name in ExciseConfig.model_fields:
        changed = ExciseConfig(**{name: _another(name, getattr(config, name))})
        assert getattr(changed, name) != getattr(config, name)
        digests.add(changed.digest())
    assert len(digests) == len(ExciseConfig.model_fields) + 1


def _another(name: str, value: Any) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return next(v for v in get_args(get_type_hints(ExciseConfig)[name]) if v != value)
    return 0.5 if value is None else value / 2 + 0.01


def test_every_setting_is_described() -> None:
    assert all(field.description for field in ExciseConfig.model_fields.values())
