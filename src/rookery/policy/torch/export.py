"""Export of policies to ONNX, torch.export and TorchScript files."""

from __future__ import annotations

import copy
import io
import warnings
from pathlib import Path
from typing import Any

import gymnasium.spaces as spaces
import numpy as np
import torch
from gymnasium.vector.utils import batch_space
from torch import Tensor, nn

from rookery.common.trees import Tree, num_rows, tree_map
from rookery.env.wrappers.action_mask import MASK_KEY
from rookery.errors import ConfigError, MissingExtra
from rookery.policy.actions import ActionPart
from rookery.policy.space_tree import leaf_spaces
from rookery.policy.torch.encoders import to_tensors
from rookery.policy.torch.policy_module import PolicyModule
from rookery.shared.spaces import batched


class DeterministicPolicy(nn.Module):
    """A module for export, from observations to the most probable actions for the env.

    `torch.export.export` supports it for all spaces, `torch.jit.trace` only if observations and
    actions are one array each. A recurrent policy takes its memory as second argument and returns
    it as second result. An action mask in the observations must have a legal choice.

    Args:
        policy: the policy, with which the module shares parameters and statistics.
    """

    def __init__(self, policy: PolicyModule) -> None:
        super().__init__()
        self.policy = policy
        for k, part in enumerate(policy.layout.parts):
            real = np.float64 if part.space.dtype == np.float64 else np.float32
            kinds = {"low": real, "high": real, "start": np.int64}
            for name, dtype in kinds.items():
                if hasattr(part.space, name) and not _is_empty(part):
                    table = torch.from_numpy(np.array(getattr(part.space, name), dtype))
                    self.register_buffer(f"{name}{k}", table, persistent=False)

    def forward(self, obs: Tree, memory: Tensor | None = None) -> Any:
        found = self.policy(tree_map(_single, obs), memory)
        mask = obs[MASK_KEY].flatten(1) != 0 if self.policy.has_action_mask else None
        rows = self.policy.distribution(found.outputs, mask).mode()
        actions = iter([self._action(k, rows) for k in range(len(self.policy.layout.parts))])
        action = batched(self.policy.layout.space, actions)
        return action if found.memory is None else (action, found.memory)

    def _action(self, index: int, rows: Tensor) -> Tensor:
        """Convert rows to actions of a part; see `ActionPart.decode` and `ActionPart.to_env`."""
        part = self.policy.layout.parts[index]
        return self._decoded(index, part, rows[:, part.columns]).to(_torch_dtype(part.space.dtype))

    def _decoded(self, index: int, part: ActionPart, rows: Tensor) -> Tensor:
        if part.kind == "categorical":
            choices = rows.long().reshape(rows.shape[0], *part.space.shape)
            start: Tensor = getattr(self, f"start{index}")
            return choices + start
        action = rows.reshape(rows.shape[0], *part.space.shape)
        if _is_empty(part):  # torch.export cannot write empty tables
            return action
        if part.kind == "bernoulli":
            return action
        low, high = getattr(self, f"low{index}"), getattr(self, f"high{index}")
        if part.kind == "squashed":
            action = low + (action + 1.0) * ((high - low) / 2)
        return torch.clamp(action, low, high)


def _single(leaf: Tensor) -> Tensor:
    """Convert float64, in which modules cannot compute, to float32."""
    return leaf.to(torch.float32) if leaf.dtype == torch.float64 else leaf


def _torch_dtype(dtype: Any) -> torch.dtype:
    """Return torch's dtype for a space; int64 for unsigned dtypes with little support in torch."""
    if dtype in (np.uint16, np.uint32, np.uint64):
        return torch.int64
    found: torch.dtype = getattr(torch, np.dtype(dtype).name)
    return found


def _example(space: spaces.Space[Any]) -> Tree:
    """Return a batch of two random observations in the dtypes of the space.

    For a batch of one row, export would treat the number of rows as a constant.
    """

    def convert(leaf: Any) -> Any:
        tensor = to_tensors(leaf)
        return tensor.to(_torch_dtype(leaf.dtype)) if isinstance(tensor, Tensor) else tensor

    return tree_map(convert, batch_space(space, 2).sample())


def _output_names(policy: PolicyModule) -> list[str]:
    """Return the names of an ONNX file's outputs in the form of its inputs: ``action_arm_0``.

    The memory after the step is ``next_memory``, because ``memory`` is an input.
    """
    names: list[str] = []
    for path, _ in leaf_spaces(policy.layout.space):
        name = "_".join(("action", *map(str, path)))
        names.append(f"{name}_{len(names)}" if name in names else name)
    return [*names, *["next_memory"][: policy.memory_width]]


def _is_empty(part: ActionPart) -> bool:
    return bool(part.columns.start == part.columns.stop)


def exported(policy: PolicyModule, observation_space: spaces.Space[Any], path: Path) -> bytes:
    """Return the deterministic policy as the content of a file; see `Agent.export`.

    Args:
        policy: the policy to export.
        observation_space: observation space of one env.
        path: path of the file; the suffix ``.onnx``, ``.pt2`` or ``.ts`` selects the format.

    Raises:
        ConfigError: the format is unknown or does not support the observations or actions.
        MissingExtra: the library for the format is not installed.
    """
    if path.suffix not in (".onnx", ".pt2", ".ts"):
        raise ConfigError(
            f"{path.name}: export writes .onnx (ONNX), .pt2 (torch.export) or .ts (TorchScript)"
        )
    obs = _example(observation_space)
    if path.suffix == ".ts" and not isinstance(obs, Tensor):
        raise ConfigError(
            f"{path.name}: TorchScript supports observations of one array only, not "
            f"{observation_space}; write .onnx or .pt2"
        )
    arguments = (obs, policy.initial_memory(2)) if policy.memory_width else (obs,)
    module = DeterministicPolicy(copy.deepcopy(policy)).eval().requires_grad_(False)
    rows = torch.export.Dim("rows", min=1)
    shapes = tree_map(lambda _: {0: rows}, arguments)
    file = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns about its older and newer exporters
            if path.suffix == ".ts":
                traced: Any = torch.jit.trace(module, arguments, check_trace=False)  # type: ignore[no-untyped-call]
                _require_free_rows(traced, arguments)
                torch.jit.save(traced, file)
            else:
                program = torch.export.export(module, arguments, dynamic_shapes=shapes)
                if path.suffix == ".pt2":
                    torch.export.save(program, file)
                else:
                    _require_onnx()
                    names = _output_names(policy)
                    found: Any = torch.onnx.export(
                        program, (), dynamo=True, verbose=False, output_names=names
                    )
                    file.write(found.model_proto.SerializeToString())
    except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError(f"{path.name}: torch cannot export this network: {reason}") from error
    return file.getvalue()


def _require_free_rows(traced: Any, arguments: tuple[Any, ...]) -> None:
    """Raise `ValueError` if a trace contains the number of rows as a constant, as ``len(x)``."""
    try:
        rows = num_rows(traced(*tree_map(lambda x: torch.cat([x, x[:1]]), arguments)))
    except RuntimeError:
        rows = None
    if rows != 3:
        raise ValueError(
            "the trace works for 2 rows only; a custom module must use x.shape[0] instead of "
            "len(x), or write .pt2"
        )


def _require_onnx() -> None:
    try:
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401
    except ImportError as error:
        raise MissingExtra("export to ONNX needs: pip install 'rookery[onnx]'") from error
