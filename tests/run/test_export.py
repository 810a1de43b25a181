"""Exported policies act as the agent does."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tqdm  # type: ignore[import-untyped]
from gymnasium import spaces
from gymnasium.vector.utils import batch_space

import rookery
from rookery import DQNConfig, PPOConfig, QRDQNConfig, SACConfig
from rookery.common.trees import tree_map
from rookery.policy.torch.encoders import to_tensors
from rookery.policy.torch.quantiles import OwnQuantiles
from rookery.run.agent import Agent
from rookery.run.algorithms import algorithm_of

BOX = spaces.Box(-1, 1, (4,), np.float32)
CASES: dict[str, tuple[Any, Any, Any]] = {
    "choice": (PPOConfig(normalize_obs=True), BOX, spaces.Discrete(3, start=2)),
    "normal": (PPOConfig(), BOX, spaces.Box(-2, 3, (2,), np.float32)),
    "squashed": (SACConfig(), BOX, spaces.Box(-2, 3, (2,), np.float32)),
    "held noise": (
        PPOConfig(state_dependent_noise=True),
        BOX,
        spaces.Box(-2, 3, (2,), np.float32),
    ),
    "squashed held noise": (
        SACConfig(state_dependent_noise=True),
        BOX,
        spaces.Box(-2, 3, (2,), np.float32),
    ),
    "doubles": (
        PPOConfig(normalize_obs=True),
        spaces.Box(-np.inf, np.inf, (4,), np.float64),
        spaces.Box(-2, 3, (2,), np.float64),
    ),
    "squashed doubles": (
        SACConfig(),
        spaces.Dict(x=spaces.Box(-9, 9, (4,), np.float64), n=spaces.Box(0, 9, (1,), np.uint16)),
        spaces.Box(-2, 3, (2,), np.float64),
    ),
    "narrow choices": (PPOConfig(), BOX, spaces.MultiDiscrete([2, 3], dtype=np.int32)),
    "values": (DQNConfig(), BOX, spaces.Discrete(4)),
    "quantiles": (QRDQNConfig(num_quantiles=5), BOX, spaces.Discrete(4)),
    "number": (PPOConfig(normalize_obs=True), spaces.Box(-1, 1, ()), spaces.Discrete(2)),
    "parts": (
        PPOConfig(),
        spaces.Dict(a=BOX, b=spaces.Discrete(3)),
        spaces.Dict(
            c=spaces.Discrete(2),
            d=spaces.Box(-1, 1, (2,), np.float32),
            none=spaces.Box(-1, 1, (0,), np.float32),
        ),
    ),
    "image": (PPOConfig(), spaces.Box(0, 255, (3, 36, 36), np.uint8), spaces.Discrete(2)),
    "mask": (
        PPOConfig(),
        spaces.Dict(action_mask=spaces.MultiBinary(6), x=BOX),
        spaces.Discrete(6),
    ),
    "masks": (
        PPOConfig(),
        spaces.Dict(action_mask=spaces.Box(0, 1, (7,), np.float32), x=BOX),
        spaces.Tuple([spaces.MultiDiscrete([2, 3]), spaces.MultiBinary(1)]),
    ),
    "masked values": (
        DQNConfig(),
        spaces.Dict(action_mask=spaces.MultiBinary(6), x=BOX),
        spaces.Discrete(6),
    ),
    "memory": (PPOConfig(recurrent="gru", memory_size=8), BOX, spaces.Discrete(3)),
}
tqdm.tqdm.get_lock()  # which torch's exporter makes for ever, and no test is to be charged with
RUNNERS = ["pt2", "ts", "onnx"]
# Their heads lie in "parts" too, whose translation for ONNX takes seconds like theirs.
_WITH_WHOLE = [("normal", "onnx"), ("normal", "pt2")]


def _agent(name: str) -> Agent:
    algo, observation_space, action_space = CASES[name]
    policy: Any = algorithm_of(algo).make_policy(observation_space, action_space, 3)
    rng = np.random.default_rng(0)
    policy.model.parameters[:] += 0.3 * rng.standard_normal(len(policy.model.parameters))
    obs = batch_space(observation_space, 50)
    obs.seed(5)
    policy.model.observe(obs.sample())
    return Agent(policy, (observation_space, action_space))


def _run(path: Path, arguments: tuple[Any, ...]) -> Any:
    """What a file makes of arguments, as a list of arrays."""
    tensors = tree_map(_as_tensor, arguments)
    if path.suffix == ".pt2":
        found = torch.export.load(path).module()(*tensors)
    elif path.suffix == ".ts":
        found = torch.jit.load(str(path))(*tensors)
    else:
        from onnx.reference import ReferenceEvaluator

        session = ReferenceEvaluator(str(path))
        return session.run(None, dict(zip(session.input_names, _leaves(tensors), strict=True)))
    return _leaves(found)


def _leaves(tree: Any) -> list[Any]:
    leaves: list[Any] = []
    tree_map(lambda leaf: leaves.append(np.asarray(leaf)), tree)
    return leaves


def _as_tensor(leaf: Any) -> torch.Tensor:
    """What an env gives, in its own dtype."""
    return torch.from_numpy(leaf.astype(np.int64) if leaf.dtype == np.uint16 else leaf)


def _layout(agent: Agent) -> Any:
    return agent.policy.layout  # type: ignore[attr-defined]


def _mask(layout: Any, rows: int) -> Any:
    """Some of the choices, and of each component at least one."""
    legal = np.random.default_rng(rows).random((rows, layout.num_choices)) < 0.3
    for part in layout.parts:
        for start, stop in itertools.pairwise(np.cumsum([part.choices.start, *part.sizes])):
            legal[np.arange(rows), np.arange(rows) % (stop - start) + start] = True
    return legal


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "suffix"),
    [
        pytest.param(name, suffix, marks=[pytest.mark.whole] * ((name, suffix) in _WITH_WHOLE))
        for name in CASES
        for suffix in RUNNERS
    ],
)
@pytest.mark.filterwarnings(
    "ignore::DeprecationWarning", "ignore::FutureWarning", "ignore::RuntimeWarning"
)
def test_a_file_acts_as_its_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, suffix: str
) -> None:
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # the exporter's bar would start a thread
    agent = _agent(name)
    path = tmp_path / f"policy.{suffix}"
    if suffix == "ts" and isinstance(agent.observation_space, spaces.Dict):
        with pytest.raises(rookery.ConfigError, match=r"TorchScript takes .* write \.onnx"):
            agent.export(path)
        return
    assert agent.export(path) == path
    for rows in (1, 7):  # the number of rows is free
        space = batch_space(agent.observation_space, rows)
        space.seed(rows)
        obs = space.sample()
        if "mask" in name:
            obs["action_mask"][...] = _mask(_layout(agent), rows)
        agent.reset()
        wanted = _leaves(agent.act(obs))
        memory = (np.zeros((rows, 16), np.float32),) if name == "memory" else ()
        found = _run(path, (obs, *memory))
        for a, b in zip(wanted, found, strict=False):
            np.testing.assert_allclose(a, b.reshape(a.shape), rtol=1e-4, atol=1e-5)
            assert a.dtype == b.dtype
        if memory:
            np.testing.assert_allclose(agent.policy.memory, found[1], rtol=1e-4, atol=1e-5)


_TWO = spaces.Box(-1, 1, (2,))


@pytest.mark.parametrize(
    ("action_space", "recurrent", "names"),
    [
        (spaces.Discrete(2), "none", {"action": 1}),
        (spaces.Box(-1, 1, (2,)), "gru", {"action": 2, "next_memory": 2}),
        (
            spaces.Dict(z=spaces.Discrete(2), a=spaces.Tuple([spaces.Discrete(3), _TWO])),
            "none",
            {"action_z": 1, "action_a_0": 1, "action_a_1": 2},
        ),
        (
            spaces.Dict({"a_0": _TWO, "a": spaces.Tuple([spaces.Discrete(3)])}),
            "none",
            {"action_a_0": 1, "action_a_0_1": 2},
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_outputs_of_onnx_are_named_after_what_they_are(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    action_space: Any,
    recurrent: Any,
    names: dict[str, int],
) -> None:
    """``names`` holds the number of axes of each output."""
    onnx = pytest.importorskip("onnx")
    monkeypatch.setattr("tqdm.tqdm.monitor_interval", 0)  # the exporter's bar would start a thread
    config = PPOConfig(recurrent=recurrent, memory_size=8)
    policy: Any = algorithm_of(config).make_policy(BOX, action_space, 3)
    path = Agent(policy, (BOX, action_space)).export(tmp_path / "policy.onnx")
    model = onnx.load(path)
    onnx.checker.check_model(model)
    found = {each.name: len(each.type.tensor_type.shape.dim) for each in model.graph.output}
    assert found == names


def test_a_missing_folder_is_reported_before_the_export(tmp_path: Path) -> None:
    with pytest.raises(rookery.ConfigError, match=r"folder .*nowhere does not exist; create it"):
        _agent("choice").export(tmp_path / "nowhere" / "policy.ts")
    (tmp_path / "policy.ts").mkdir()
    with pytest.raises(rookery.StorageError, match=r"cannot write .*policy.ts"):
        _agent("choice").export(tmp_path / "policy.ts")
    assert [path.name for path in tmp_path.iterdir()] == ["policy.ts"]


def test_an_unknown_file_format_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rookery.ConfigError, match=r"\.onnx .*\.pt2 .*\.ts"):
        _agent("choice").export(tmp_path / "policy.bin")


class _OfTwoRows(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3 * 5)

    def forward(self, obs: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.linear(obs)
        return outputs.view(len(outputs), 3, 5).mean(2)


def test_a_network_whose_trace_holds_for_two_rows_only_is_refused(tmp_path: Path) -> None:
    spaces_of_it = BOX, spaces.Discrete(3)
    agent = Agent(rookery.TorchPolicy(_OfTwoRows(), *spaces_of_it), spaces_of_it)
    with pytest.raises(rookery.ConfigError, match=r"holds for 2 rows only; .* x\.shape\[0\]"):
        agent.export(tmp_path / "policy.ts")
    assert not (tmp_path / "policy.ts").exists()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_quantiles_of_an_own_network_are_exported_for_any_number_of_rows() -> None:
    traced: Any = torch.jit.trace(  # type: ignore[no-untyped-call]
        OwnQuantiles(torch.nn.Linear(4, 3 * 5), 5), torch.zeros(2, 4)
    )
    assert [tuple(traced(torch.zeros(rows, 4)).shape) for rows in (1, 7)] == [(1, 3), (7, 3)]


def test_an_exported_agent_can_still_learn(tmp_path: Path) -> None:
    agent = _agent("masks")
    agent.export(tmp_path / "policy.pt2")
    module: Any = agent.policy.model.module  # type: ignore[attr-defined]
    obs = to_tensors(batch_space(agent.observation_space, 5).sample())
    drawn = module.distribution(module(obs).outputs)
    assert torch.isfinite(drawn.log_prob(drawn.sample()) + drawn.entropy()).all()
