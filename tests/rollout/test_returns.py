"""Advantages and returns against numbers worked out by hand."""

from __future__ import annotations

import numpy as np

from rookery.rollout import gae

# Two envs, three steps. Env 0 goes on; env 1 is truncated at t=1 and terminates at t=2.
REWARD = np.array([[1, 1], [2, 1], [3, 1]], np.float32)
VALUE = np.array([[0.5, 0.5], [1.0, 1.0], [1.5, 1.5]], np.float32)
LAST_VALUE = np.array([2.0, 100.0], np.float32)
TERMINATED = np.array([[0, 0], [0, 0], [0, 1]], np.bool_)
TRUNCATED = np.array([[0, 0], [0, 1], [0, 0]], np.bool_)
FINAL_VALUE = np.array([[0, 0], [0, 4], [0, 0]], np.float32)
STREAM = (LAST_VALUE, TERMINATED, TRUNCATED, FINAL_VALUE)


def test_gae_gives_the_numbers_worked_out_by_hand():
    advantage, returns = gae(REWARD, VALUE, *STREAM, gamma=0.5, gae_lambda=0.5)
    # Env 0: delta = 1, 1.75, 2.5, discounted by 0.25. Env 1: delta = 1, 1 + 0.5*4 - 1, 1 - 1.5.
    expected = np.array([[1.59375, 1.5], [2.375, 2.0], [2.5, -0.5]])
    np.testing.assert_allclose(advantage, expected, atol=1e-6)
    np.testing.assert_allclose(returns, expected + VALUE, atol=1e-6)
    assert advantage.dtype == returns.dtype == np.float32


def test_a_truncated_episode_goes_on_with_its_final_value_a_terminated_one_does_not():
    both = TERMINATED | TRUNCATED
    advantage, _ = gae(
        REWARD, VALUE, LAST_VALUE, both, TRUNCATED, FINAL_VALUE, gamma=0.5, gae_lambda=0.5
    )
    np.testing.assert_allclose(advantage[:, 1], [1.0, 0.0, -0.5], atol=1e-6)


def test_an_invalid_row_cuts_the_sum_and_the_row_before_it_bootstraps():
    valid = np.array([[1, 1], [0, 1], [1, 1]], np.bool_)
    advantage, _ = gae(REWARD, VALUE, *STREAM, gamma=0.5, gae_lambda=0.5, valid=valid)
    np.testing.assert_allclose(advantage[:, 0], [1.0, 0.0, 2.5], atol=1e-6)


def test_lambda_one_is_the_discounted_return_minus_the_value():
    advantage, returns = gae(REWARD, VALUE, *STREAM, gamma=0.5, gae_lambda=1.0)
    expected = np.array([[3.0, 2.5], [4.0, 3.0], [4.0, 1.0]])
    np.testing.assert_allclose(returns, expected, atol=1e-6)
    np.testing.assert_allclose(advantage, expected - VALUE, atol=1e-6)
