"""Custom algorithms: their state is restored, and their mistakes are named."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from run_files import assert_same_run
from torch import nn

import rookery
from rookery import ConfigError, PPOConfig, StopTraining, UsageError
from rookery.run.checkpoint.files import load_checkpoint, save_checkpoint

QUICK = PPOConfig(num_steps=16, num_epochs=1, minibatch_size=32)


class Net(nn.Module):
    """Logits and values."""

    def __init__(self) -> None:
        super().__init__()
        self.actor, self.critic = nn.Linear(4, 2), nn.Linear(4, 1)

    def forward(self, obs: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.actor(obs), self.critic(obs)[:, 0]


class Regression(rookery.Algorithm):
    """Learns to predict rewards with torch's own Adam: enough to have a state."""

    name = "regression"

    def __init__(self, num_steps: Any = 16) -> None:
        self.num_steps = num_steps

    def make_policy(self, observation_space: Any, action_space: Any, seed: int) -> Any:
        torch.manual_seed(seed)
        return rookery.TorchPolicy(Net(), observation_space, action_space, seed=seed)

    def start(self, policy: Any, num_envs: int, seed: int) -> None:
        self.module = policy.module
        self.optimizer = torch.optim.Adam(self.module.parameters(), 1e-2, betas=(0.5, 0.9))
        self.averaged = torch.zeros(3)

    def update(self, rollout: rookery.Rollout, progress: float) -> Any:
        batch = rollout.torch()
        _, value, _ = self.module(batch.obs.flatten(0, 1))
        loss = (value - batch.reward.flatten()).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.averaged = 0.9 * self.averaged + loss.detach()
        return {"value_loss": loss.item()}

    def state_dict(self) -> Any:
        return {"optimizer": self.optimizer.state_dict(), "averaged": self.averaged}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(state["optimizer"])
        self.averaged = state["averaged"] * 1.0


def _trainer(run_dir: Path, algo: Any, **options: Any) -> Any:
    options = {"total_steps": 128, "num_envs": 2, "backend": "serial", "eval_episodes": 2} | options
    return rookery.Trainer("CartPole-v1", algo, run_dir=run_dir, **options)


def test_an_optimizer_of_torchs_goes_on_where_it_was(tmp_path: Path) -> None:
    with _trainer(tmp_path / "parts", Regression()) as trainer:
        for update in trainer:
            if update.steps == 64:
                break
    assert rookery.resume(tmp_path / "parts", algo=Regression()).steps == 128
    with _trainer(tmp_path / "whole", Regression()) as trainer:
        list(trainer)
    assert_same_run(tmp_path / "whole", tmp_path / "parts")


def test_a_state_comes_back_as_it_was_given(tmp_path: Path) -> None:
    state = {
        "tensor": torch.arange(3.0),
        "step": torch.tensor(7),
        "array": np.arange(4, dtype=np.uint8),
        "scalar": np.float32(0.5),
        "nested": [{"texts": np.array(["a", "bc"]), "pair": (1, None)}, b"bytes", 2 + 1j],
        3: True,
    }
    save_checkpoint(tmp_path / "file.pt", state)
    found = load_checkpoint(tmp_path / "file.pt")
    assert found.keys() == state.keys()
    assert isinstance(found["tensor"], torch.Tensor) and found["tensor"].tolist() == [0, 1, 2]
    assert isinstance(found["step"], torch.Tensor) and found["step"] == 7
    assert isinstance(found["array"], np.ndarray) and found["array"].dtype == np.uint8
    assert found["scalar"] == 0.5 and found[3] is True
    assert found["nested"][0]["texts"].tolist() == ["a", "bc"]
    assert found["nested"][0]["pair"] == (1, None) and found["nested"][1:] == [b"bytes", 2 + 1j]


class Configured(Regression):
    """Keeps settings of its own form in ``config``."""

    def __init__(self) -> None:
        super().__init__()
        self.config = {"learning_rate": 1e-2}


def test_config_of_a_custom_algorithm_may_be_anything(tmp_path: Path) -> None:
    with _trainer(tmp_path, Configured()) as trainer:
        next(trainer)
    assert rookery.resume(tmp_path, algo=Configured()).steps == 128


class Broken(Regression):
    """Does one thing wrong."""

    def __init__(self, part: str, result: Any) -> None:
        super().__init__()
        self.part, self.result = part, result

    def make_policy(self, *arguments: Any) -> Any:
        return self.result if self.part == "policy" else super().make_policy(*arguments)

    def update(self, *arguments: Any) -> Any:
        return self.result if self.part == "update" else super().update(*arguments)

    def state_dict(self) -> Any:
        return self.result if self.part == "state" else super().state_dict()


class WithoutModel(rookery.TorchPolicy):
    """Has nothing that could be learned."""

    def __init__(self) -> None:
        pass

    model = None


@pytest.mark.parametrize(
    ("part", "result", "message"),
    [
        ("policy", None, r"make_policy of algorithm 'regression' returned None, which is no"),
        ("policy", Net(), r"returned a Net, .* lacks act, .*rookery.TorchPolicy\(module"),
        ("policy", WithoutModel(), r"a policy whose model, None, lacks parameters"),
        ("update", None, r"update of algorithm 'regression' returned None, not a dict"),
        ("update", {"loss": "low"}, r"metric 'loss' must be a number, got a str"),
        ("state", None, r"state_dict of algorithm 'regression' returned None, not a dict"),
        ("state", {"a": [1, {2: Net()}]}, r"holds a Net at \['it'\]\['a'\]\[1\]\[2\]"),
        ("state", {"a": np.array([Net()])}, r"holds an array of object at \['it'\]\['a'\]"),
    ],
)
@pytest.mark.parametrize("collector", ["caller", "workers"])
def test_mistakes_of_custom_algorithms_are_named(
    tmp_path: Path, part: str, result: Any, message: str, collector: str
) -> None:
    options = {"backend": "auto"} if collector == "workers" else {}
    with (
        pytest.raises(ConfigError, match=message),
        _trainer(tmp_path, Broken(part, result), collector=collector, **options) as trainer,
    ):
        list(trainer)


@pytest.mark.parametrize("num_steps", [0, -1, 2.5, "16", None])
def test_an_invalid_num_steps_is_refused_before_the_run_starts(
    tmp_path: Path, num_steps: Any
) -> None:
    with pytest.raises(ConfigError, match="num_steps of algorithm 'regression' must be a whole"):
        _trainer(tmp_path / "run", Regression(num_steps))
    assert not (tmp_path / "run").exists()


def _stop(*_: Any) -> Any:
    return next(iter(()))


class Sink:
    """Has no room for any line."""

    write = staticmethod(_stop)

    def close(self) -> None:
        """Nothing to close."""


class Stopping(Regression):
    """Its own iterator has come to its end."""

    update = staticmethod(_stop)  # type: ignore[assignment]


@pytest.mark.parametrize(
    "options",
    [
        {"callbacks": [_stop]},
        {"sinks": [Sink()]},
        {"algo": PPOConfig(num_steps=16, learning_rate=_stop)},
        {"algo": Stopping()},
    ],
    ids=["callback", "sink", "schedule", "algorithm"],
)
def test_an_iterator_at_its_end_is_not_taken_for_the_end_of_the_run(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    options = {"algo": QUICK, **options}
    with (
        pytest.raises(UsageError, match="raised StopIteration") as caught,
        _trainer(tmp_path, **options) as trainer,
    ):
        list(trainer)
    assert isinstance(caught.value.__cause__, StopIteration)


def _closes(trainer: Any, _: Any) -> None:
    trainer.close()


def _goes_on(trainer: Any, _: Any) -> None:
    next(trainer)


@pytest.mark.parametrize("callback", [_closes, _goes_on])
def test_callbacks_neither_close_the_run_nor_go_on_with_it(
    tmp_path: Path, callback: Callable[..., None]
) -> None:
    with (
        pytest.raises(UsageError, match=r"during an update; .*StopTraining"),
        _trainer(tmp_path, QUICK, callbacks=[callback]) as trainer,
    ):
        list(trainer)


def test_a_callback_that_ends_the_run_leaves_it_whole(tmp_path: Path) -> None:
    def stop(_: Any, update: Any) -> None:
        raise StopTraining("enough")

    with _trainer(tmp_path, QUICK, callbacks=[stop]) as trainer:
        assert [update.steps for update in trainer] == [32] and trainer.stopped == "enough"
