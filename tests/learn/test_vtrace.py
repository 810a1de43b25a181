"""V-trace against equation 1 of its paper, written out term by term."""

from __future__ import annotations

import numpy as np
import pytest

from rookery.learn.on_policy.impala import vtrace
from rookery.rollout import gae

T, B, GAMMA = 7, 5, 0.9


def _experience(seed: int = 0):
    rng = np.random.default_rng(seed)
    names = ("log_ratio", "reward", "value", "final_value")
    floats = {name: rng.normal(size=(T, B)).astype(np.float32) for name in names}
    terminated, truncated = rng.random((2, T, B)) < 0.2
    last_value = rng.normal(size=B).astype(np.float32)
    return {**floats, "last_value": last_value, "terminated": terminated, "truncated": truncated}


def _next(e, values, t, b):
    """Value of what follows row (t, b): ``values`` are of the rows, then ``last_value``."""
    if e["terminated"][t, b]:
        return 0.0
    if e["truncated"][t, b]:
        return e["final_value"][t, b]
    return values[t + 1, b] if t + 1 < T else e["last_value"][b]


def _reference(e, rho_clip, c_clip, trace_lambda, valid):
    """Equation 1: v_s = V_s + sum_t gamma^(t-s) (prod_{s<=i<t} c_i) delta_t, and the advantage."""
    ratio, value = np.exp(e["log_ratio"].astype(np.float64)), e["value"]
    rho, c = np.minimum(rho_clip, ratio), trace_lambda * np.minimum(c_clip, ratio)
    target = value.astype(np.float64).copy()
    for b in range(B):
        for s in range(T):
            for t in range(s, T):
                if not valid[t, b]:
                    break
                delta = rho[t, b] * (
                    e["reward"][t, b] + GAMMA * _next(e, value, t, b) - value[t, b]
                )
                target[s, b] += GAMMA ** (t - s) * np.prod(c[s:t, b]) * delta
                if e["terminated"][t, b] or e["truncated"][t, b]:
                    break
    advantage = np.zeros((T, B))
    for t, b in np.argwhere(valid):
        following = e["reward"][t, b] + GAMMA * _next(e, target, t, b)
        advantage[t, b] = rho[t, b] * (following - value[t, b])
    return target, advantage


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("rho_clip", "c_clip", "trace_lambda"), [(1, 1, 1), (2, 0.5, 1), (np.inf, 1, 0.8), (1, 1, 0)]
)
@pytest.mark.parametrize("has_invalid_rows", [False, True])
def test_targets_and_advantages_are_those_of_the_paper(
    seed, rho_clip, c_clip, trace_lambda, has_invalid_rows
):
    e = _experience(seed)
    valid = np.random.default_rng(seed).random((T, B)) > 0.2 * has_invalid_rows
    options = {"rho_clip": rho_clip, "c_clip": c_clip, "trace_lambda": trace_lambda}
    actual = vtrace(**e, gamma=GAMMA, **options, valid=valid)
    target, advantage = _reference(e, rho_clip, c_clip, trace_lambda, valid)
    np.testing.assert_allclose(actual.target, target, atol=1e-5)
    np.testing.assert_allclose(actual.advantage, advantage, atol=1e-5)
    assert actual.target.dtype == actual.advantage.dtype == np.float32


def test_under_the_policy_that_acted_targets_are_n_step_returns():
    e = _experience()
    e["log_ratio"][:] = 0
    actual = vtrace(**e, gamma=GAMMA)
    ends = e["last_value"], e["terminated"], e["truncated"], e["final_value"]
    _, returns = gae(e["reward"], e["value"], *ends, gamma=GAMMA, gae_lambda=1.0)
    np.testing.assert_allclose(actual.target, returns, atol=1e-5)
    np.testing.assert_allclose(actual.advantage, returns - e["value"], atol=1e-5)


def test_what_is_no_number_in_an_invalid_row_stays_there():
    e = _experience()
    valid = np.ones((T, B), np.bool_)
    valid[3, 1] = False
    expected = vtrace(**e, gamma=GAMMA, valid=valid)
    e["log_ratio"][3, 1] = np.nan
    actual = vtrace(**e, gamma=GAMMA, valid=valid)
    np.testing.assert_array_equal(actual.target, expected.target)
    np.testing.assert_array_equal(actual.advantage, expected.advantage)


def test_an_action_that_the_policy_would_never_take_now_teaches_nothing():
    e = _experience()
    e["log_ratio"][2] = -100
    actual = vtrace(**e, gamma=GAMMA)
    np.testing.assert_allclose(actual.target[2], e["value"][2], atol=1e-6)
    np.testing.assert_allclose(actual.advantage[2], 0, atol=1e-6)
