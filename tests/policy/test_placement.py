"""Where torch networks learn."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from gymnasium import spaces
from programs import output_of

from rookery import A2CConfig, ConfigError, DQNConfig, PPOConfig
from rookery.policy import make_policy, placement
from rookery.policy.compilation import require_compiler
from rookery.policy.network import MLPNetwork, network_for, require_machine
from rookery.policy.placement import Placement, torch_device
from rookery.policy.torch_network import TorchNetwork

VECTOR = spaces.Box(-1, 1, (5,))
IMAGE = spaces.Box(0, 255, (40, 44, 3), np.uint8)
ABSENT = "cuda:99"


@pytest.fixture
def apart(monkeypatch):
    """Keep torch's parameters apart from the model's on the cpu too, as they are on a GPU."""
    monkeypatch.setattr(placement, "shares_memory", lambda device: False)


def _model(space=VECTOR, action_space=spaces.Box(-1, 1, (2,))):  # noqa: B008
    model = make_policy(space, action_space).model
    noise = np.random.default_rng(1).normal(size=model.parameters.shape)
    model.parameters += 0.05 * noise.astype(np.float32)
    return model


def _evaluated(network, model, space):
    """Evaluate made-up transitions; return the results and the gradient, all with numpy."""
    rng = np.random.default_rng(2)
    if space is IMAGE:
        obs = rng.integers(0, 256, (7, *space.shape), dtype=np.uint8)
    else:
        obs = rng.normal(size=(7, *space.shape)).astype(np.float32)
    action = model.head.encode(rng.normal(size=(7, 2)).astype(np.float32))
    features = network.send(model.encode(obs))()
    now = network.evaluate(features, action)
    gradient = now.backward(*rng.normal(size=(3, 7)).astype(np.float32))
    return now.log_prob, now.entropy, now.value, torch.as_tensor(gradient).cpu().numpy()


@pytest.mark.parametrize("space", [VECTOR, IMAGE], ids=["vector", "image"])
def test_a_network_with_parameters_apart_computes_the_same(space, monkeypatch):
    model = _model(space)
    expected = _evaluated(TorchNetwork(model), model, space)
    monkeypatch.setattr(placement, "shares_memory", lambda device: False)
    network = TorchNetwork(model)
    assert isinstance(network.parameters, torch.Tensor)
    for ours, theirs in zip(_evaluated(network, model, space), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_parameters_apart_come_back_when_learning_ends(apart):
    model = _model()
    before = model.parameters.copy()
    place = Placement(model)
    with place.learning():
        place.parameters += 1.0
        np.testing.assert_array_equal(model.parameters, before)
        np.testing.assert_allclose(place.log_std(), before[-2:] + 1.0)
    np.testing.assert_allclose(model.parameters, before + 1.0)


def test_parameters_apart_follow_what_was_loaded_into_the_model(apart):
    model = _model()
    place = Placement(model)
    model.parameters[:] = 3.0
    with place.learning():
        assert bool((place.parameters == 3.0).all())


def test_on_the_cpu_torch_writes_the_memory_of_the_model():
    model = _model()
    place = Placement(model)
    assert place.parameters is model.parameters
    model.parameters[0] = 7.0
    assert place.flat[0].item() == 7.0


def test_constant_and_flipped_images_are_read_like_others():
    policy = make_policy(IMAGE, spaces.Discrete(2))
    obs = np.random.default_rng(0).integers(0, 256, (3, *IMAGE.shape), dtype=np.uint8)
    flipped = np.ascontiguousarray(obs[:, ::-1])[:, ::-1]
    constant = obs.copy()
    constant.flags.writeable = False
    for same in (flipped, constant):
        np.testing.assert_allclose(policy.value(same), policy.value(obs), rtol=1e-5)


def test_numpy_computes_only_where_nothing_asks_for_torch():
    assert isinstance(network_for(_model()), MLPNetwork)
    assert isinstance(network_for(_model(IMAGE)), TorchNetwork)


def test_a_device_that_is_not_there_is_refused_with_the_way_out():
    with pytest.raises(ConfigError, match=r"sees \d devices of type 'cuda' here.*leave device at"):
        torch_device(ABSENT)
    with pytest.raises(ConfigError, match="'cuda:N' or 'mps'"):
        torch_device("gpu!")
    with pytest.raises(ConfigError, match=ABSENT):
        require_machine(ABSENT, compiled=False)
    with pytest.raises(ConfigError, match=ABSENT):
        network_for(_model(), ABSENT)


@pytest.mark.parametrize("config", [PPOConfig, A2CConfig, DQNConfig])
def test_a_device_of_no_known_kind_is_refused_by_the_settings(config):
    assert config(device="cuda:1").device == "cuda:1"
    with pytest.raises(ConfigError, match="device is 'tpu'"):
        config(device="tpu")


def test_compiling_needs_a_compiler(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ConfigError, match=r"needs a C\+\+ compiler.*no-such-compiler"):
        require_compiler()
    with pytest.raises(ConfigError, match="leave compile out"):
        network_for(_model(), compiled=True)


_COMPARE = """
import json, numpy as np
from gymnasium import spaces
from rookery.policy import make_policy
from rookery.policy.network import network_for

model = make_policy(spaces.Box(-1, 1, (5,)), spaces.Discrete(3)).model
features = model.encode(np.random.default_rng(0).normal(size=(9, 5)).astype(np.float32))
by = np.ones((9, 3), np.float32), np.ones(9, np.float32)
gradients = []
for compiled in (False, True):
    network = network_for(model, compiled=compiled)
    gradients.append(np.array(network.forward(features).backward(*by)))
print(json.dumps([float(abs(gradients[0] - gradients[1]).max()), type(network).__name__]))
"""


@pytest.mark.slow
@pytest.mark.whole  # of the machine that computes, not of what: that is asked above
def test_a_compiled_network_has_the_gradients_of_numpy():
    try:
        require_compiler()
    except ConfigError as error:
        pytest.skip(str(error))
    # In a process of its own: the compiler keeps threads and caches of its own.
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    out = output_of(_COMPARE, env=environment)
    difference, name = json.loads(out.splitlines()[-1])
    assert name == "TorchNetwork"
    assert difference < 1e-4


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("space", [VECTOR, IMAGE], ids=["vector", "image"])
def test_a_gpu_computes_what_the_cpu_does(space):
    model = _model(space)
    expected = _evaluated(TorchNetwork(model), model, space)
    # Convolutions round to 10 bits of mantissa there.
    found = _evaluated(TorchNetwork(model, "cuda"), model, space)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=2e-2, atol=2e-2)
