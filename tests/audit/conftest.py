"""Results made by hand: the report and the log need no model."""

from __future__ import annotations

import pytest
from audit_results import make_hostile, make_result, make_silent

from excise_integrations import ExciseResult


@pytest.fixture
def fired() -> ExciseResult:
    return make_result()


@pytest.fixture
def silent() -> ExciseResult:
    return make_silent()


@pytest.fixture
def hostile() -> ExciseResult:
    return make_hostile()
