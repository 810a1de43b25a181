"""Compiled networks learn what others learn, to rounding."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from programs import output_of

from rookery import ConfigError
from rookery.learn.machine import require_compiler

# A separate program: torch's compiler leaves caches, and processes where it is not told to use
# none. It prints the gradients of all steps of some updates, and the weights that they lead to.
SCRIPT = """
import json, sys
import numpy as np
from gymnasium import spaces
import rookery
from rookery import A2CConfig, DQNConfig, ImpalaConfig, PPOConfig, QRDQNConfig
from rookery.rollout import Rollout
from rookery.run.algorithms import BuiltIn

name, compiles = sys.argv[1], sys.argv[2] == "compiled"
T, B = 8, 4
VECTOR, IMAGE = spaces.Box(-1, 1, (3,)), spaces.Box(0, 255, (20, 20, 3), np.uint8)
cut = dict(num_steps=T, minibatch_size=16)
replay = dict(num_steps=T, warmup_steps=8, batch_size=16, updates_per_step=0.2)
CASES = {
    "ppo": ("ppo", PPOConfig(**cut, num_epochs=2, compile=compiles), VECTOR),
    "images": ("ppo", PPOConfig(**cut, num_epochs=1, compile=compiles), IMAGE),
    "a2c": ("a2c", A2CConfig(num_steps=T, compile=compiles), VECTOR),
    "impala": ("impala", ImpalaConfig(num_steps=T, compile=compiles), VECTOR),
    "dqn": ("dqn", DQNConfig(**replay, compile=compiles), VECTOR),
    "qrdqn": ("qrdqn", QRDQNConfig(**replay, num_quantiles=5, compile=compiles), VECTOR),
}
algo, config, space = CASES[name]
algorithm = BuiltIn(algo, config)
policy = algorithm.make_policy(space, spaces.Discrete(3), 0)
algorithm.start(policy, B, 0)
learner, gradients = algorithm._learner, []
take = learner._optimizer.step

def step(gradient, learning_rate):
    gradients.append(gradient.tolist())
    take(gradient, learning_rate)

learner._optimizer.step = step
rng = np.random.default_rng(0)
for k in range(2):
    if space is IMAGE:
        obs = rng.integers(0, 256, (T + 1, B, *space.shape), dtype=np.uint8)
    else:
        obs = rng.normal(size=(T + 1, B, *space.shape)).astype(np.float32)
    steps = [policy.act(rows) for rows in obs[:-1]]
    rollout = Rollout.allocate(T, obs[0], steps[0].action)
    rollout.obs, rollout.last_obs = obs[:-1], obs[-1]
    for t, taken in enumerate(steps):
        rollout.action[t], rollout.log_prob[t], rollout.value[t] = taken
    rollout.reward[:] = rng.normal(size=(T, B))
    rollout.terminated[:] = rng.random((T, B)) < 0.1
    algorithm.update(rollout, 0.5 * k)
print(json.dumps({"gradients": gradients, "weights": policy.model.parameters.tolist()}))
"""


def _can_compile() -> bool:
    try:
        require_compiler()
    except ConfigError:
        return False
    return True


def _learned(
    name: str, how: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[list, list]:
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    told = json.loads(output_of(SCRIPT, arguments=[name, how]).splitlines()[-1])
    return told["gradients"], told["weights"]


@pytest.mark.skipif(not _can_compile(), reason="torch.compile needs a C++ compiler; there is none")
@pytest.mark.whole  # the compiler takes more than half a minute for the smallest of them
@pytest.mark.parametrize("name", ["ppo", "images", "a2c", "impala", "dqn", "qrdqn"])
def test_compiled_networks_have_the_gradients_and_the_weights_of_others(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients, weights = _learned(name, "plain", tmp_path, monkeypatch)
    compiled_gradients, compiled_weights = _learned(name, "compiled", tmp_path, monkeypatch)
    assert any(tmp_path.rglob("*.so")), "nothing was compiled"
    assert len(gradients) == len(compiled_gradients) > 1
    # Each step starts from the rounding errors of the steps before it.
    for plain, compiled in zip(gradients, compiled_gradients, strict=True):
        scale = float(np.abs(plain).max())
        np.testing.assert_allclose(compiled, plain, rtol=1e-3, atol=1e-4 * scale)
    np.testing.assert_allclose(compiled_weights, weights, rtol=1e-3, atol=1e-4)
