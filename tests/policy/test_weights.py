"""The weight store returns complete sets of weights or an error."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from gymnasium import spaces

from rookery.common.seeding import env_seeds
from rookery.policy import make_policy, weights
from rookery.policy.base import ACTIONS, MINIBATCHES, WEIGHTS, seed_for, stream
from rookery.policy.weights import WeightStore
from rookery.shared import Layout

OBS = spaces.Box(-1, 1, (3,))
ACTION = spaces.Discrete(2)


def _model(seed: int = 0, normalize_obs: bool = True):
    return make_policy(OBS, ACTION, normalize_obs=normalize_obs, seed=seed).model


def _views(model):
    layout = Layout(WeightStore.columns(model))
    return layout.views(bytearray(layout.size_bytes))


@pytest.mark.parametrize("normalize_obs", [True, False])
def test_a_reader_gets_parameters_statistics_and_version(normalize_obs):
    first, second = (make_policy(OBS, ACTION, normalize_obs=normalize_obs, seed=s) for s in (1, 2))
    learner, actor = first.model, pickle.loads(pickle.dumps(second)).model
    learner.observe(np.random.default_rng(0).normal(3, 2, (50, 3)).astype(np.float32))
    views = _views(learner)
    WeightStore(views).publish(learner, version=7)
    assert WeightStore(views).read(actor) == 7
    np.testing.assert_array_equal(actor.parameters, learner.parameters)
    np.testing.assert_array_equal(actor.extras(), learner.extras())
    assert len(actor.extras()) == 6 * normalize_obs


def test_the_newest_weights_are_read_also_after_many():
    learner, actor = _model(1), _model(2)
    views = _views(learner)
    writer, reader = WeightStore(views), WeightStore(views)
    for version in range(5):
        learner.parameters += 1.0
        writer.publish(learner, version)
        writer.publish(learner, version)
        assert reader.read(actor) == version == reader.read(actor)
        np.testing.assert_array_equal(actor.parameters, learner.parameters)


@pytest.mark.parametrize("torn", ["weights.parameters", "weights.extras", "weights.signatures"])
def test_a_torn_set_is_an_error_and_changes_nothing(torn, monkeypatch):
    learner, actor = _model(1), _model(2)
    before = actor.parameters.copy()
    views = _views(learner)
    WeightStore(views).publish(learner, 1)
    views[torn][1, 0] += 1  # a store of another set is seen too early
    monkeypatch.setattr(weights, "_PATIENCE_S", 0.0)
    with pytest.raises(RuntimeError, match="no complete set"):
        WeightStore(views).read(actor)
    np.testing.assert_array_equal(actor.parameters, before)


@pytest.mark.parametrize("overtaken", ["weights.parameters", "weights.extras"])
def test_a_reader_retries_if_its_slot_is_overwritten(overtaken):
    learner, actor = _model(1), _model(2)
    views = _views(learner)
    writer = WeightStore(views)

    def publish(version: int) -> None:
        learner.parameters[:] = version
        learner.set_extras(np.full(6, version + 1.0))
        writer.publish(learner, version)

    publish(0)
    coming = [1, 2, 3]  # the second of them takes the place that is being read

    class Overtaken(np.ndarray):
        """Is written to just before its first row is read."""

        def __getitem__(self, place):
            while coming:
                publish(coming.pop(0))
            return super().__getitem__(place)

    reader = WeightStore({**views, overtaken: views[overtaken].view(Overtaken)})
    assert reader.read(actor) == 3
    assert (actor.parameters == 3).all()
    assert (actor.extras() == 4).all()


def test_a_pickled_policy_acts_with_its_own_models_parameters():
    policy = make_policy(OBS, ACTION, seed=3)
    policy.version = 5
    copy = pickle.loads(pickle.dumps(policy))
    obs = np.ones((40, 3), np.float32)
    assert copy.version == 5
    np.testing.assert_array_equal(copy.sample(obs), policy.sample(obs))
    before = copy.value(obs)
    copy.model.parameters += 1.0
    assert (copy.value(obs) != before).all()


def test_readers_get_exploration_with_the_weights():
    learner, actor = (make_policy(OBS, ACTION, num_exploration=1, seed=s) for s in (1, 2))
    actor = pickle.loads(pickle.dumps(actor))
    learner.model.exploration[0] = 0.25
    views = _views(learner.model)
    WeightStore(views).publish(learner.model, 0)
    WeightStore(views).read(actor.model)
    assert actor.model.exploration == [0.25]


def test_streams_depend_on_the_generators_state():
    def draws(index: int, advanced: bool = False) -> float:
        rng = np.random.default_rng(4)
        if advanced:
            rng.random()
        return float(stream(rng, index).random())

    assert draws(0) == np.random.default_rng(4).random()
    assert len({draws(0), draws(1), draws(2), draws(1, advanced=True)}) == 4
    assert draws(2) == draws(2)


def test_seeds_of_a_run_are_all_different():
    purposes = (WEIGHTS, ACTIONS, MINIBATCHES)
    seeds = [seed_for(seed, purpose) for seed in range(50) for purpose in purposes]
    envs = [seed for root in range(50) for seed in env_seeds(root, 4)]
    words = [*seeds, *envs]
    assert len(set(words)) == len(words)
    assert len({word % 2**31 for word in words}) == len(words)
    assert seed_for(3, ACTIONS, 1) != seed_for(3, ACTIONS)
