"""Flat parameters of modules of every kind."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from rookery import ConfigError
from rookery.policy.model import FlatParameters


def _numbers(*shape, seed=1):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


class _Tied(nn.Module):
    """Reads and writes with the same weights; counts how often; has a table that is no state."""

    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4, bias=False)
        self.second.weight = self.first.weight
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("table", torch.arange(5), persistent=False)
        self.register_buffer("seen", torch.zeros((), dtype=torch.float64))
        self.register_buffer("flags", torch.tensor([True, False]))

    def forward(self, x):
        self.seen = self.seen + len(x)
        return self.second(self.norm(self.first(x)))


def _perceptron():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def test_the_module_computes_as_before_and_reads_the_flat_array():
    module = _perceptron()
    x = _numbers(6, 3)
    before, parameters = module(x), list(module.parameters())
    flat = FlatParameters(module)
    assert all(a is b for a, b in zip(module.parameters(), parameters, strict=True))
    torch.testing.assert_close(module(x), before)
    assert flat.size == len(flat.array) == 3 * 5 + 5 + 5 * 2 + 2
    assert flat.shapes == {"0.weight": (5, 3), "0.bias": (5,), "2.weight": (2, 5), "2.bias": (2,)}
    flat.array[:] = 0.0
    flat.views(flat.array)["2.bias"][:] = 1.0, 2.0
    assert module(x).tolist() == [[1.0, 2.0]] * 6
    flat.tensor[-1] = 7.0
    assert flat.array[-1] == 7.0 == module[2].bias[1].item()


def test_the_gradient_equals_autograds():
    module = _perceptron()
    flat = FlatParameters(module)
    x = _numbers(6, 3)
    found = flat.gradient(module(x).square().sum())
    module(x).square().sum().backward()
    for name, parameter in module.named_parameters():
        torch.testing.assert_close(flat.views(found)[name], parameter.grad)


def test_a_step_on_the_flat_array_is_a_step_of_torchs_optimiser():
    module, twin = _perceptron(), _perceptron()
    flat = FlatParameters(module)
    optimizer = torch.optim.SGD(twin.parameters(), lr=0.1)
    for seed in range(3):
        x = _numbers(6, 3, seed=seed)
        flat.tensor -= 0.1 * flat.gradient(module(x).square().sum())
        optimizer.zero_grad()
        twin(x).square().sum().backward()
        optimizer.step()
    for ours, theirs in zip(module.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


def test_frozen_and_unread_parameters_have_no_gradient():
    module = _perceptron()
    module[0].weight.requires_grad_(False)
    module.extra = nn.Parameter(torch.ones(2))
    flat = FlatParameters(module)
    views = flat.views(flat.gradient(nn.Sequential.forward(module[:3], _numbers(6, 3)).sum()))
    assert not views["0.weight"].any() and not views["extra"].any()
    assert views["0.bias"].all() and views["2.weight"].all()


def test_tied_weights_stay_tied_and_appear_once():
    module = _Tied()
    flat = FlatParameters(module)
    assert flat.size == 16 + 4 + 4 + 4
    x = _numbers(6, 4)
    found = flat.views(flat.gradient(module(x).square().sum()))["first.weight"].clone()
    flat.tensor[:] = flat.tensor * 0.5
    assert module.first.weight is module.second.weight
    module.load_state_dict(
        {k: v * 2 if "weight" in k else v for k, v in module.state_dict().items()}
    )
    assert found.any()
    assert module.second.weight.data_ptr() == flat.tensor.data_ptr()


def test_buffers_of_every_dtype_are_transferred():
    module, other = _Tied(), _Tied()
    flat, received = FlatParameters(module), FlatParameters(other)
    for seed in range(3):
        module(_numbers(6, 4, seed=seed))
    module.flags[:] = torch.tensor([False, True])
    sent = flat.buffers()
    # mean and variance float32 [4], num_batches_tracked int64, seen float64, flags bool [2]
    assert sent.dtype == np.float64 and len(sent) == 4 + 4 + 1 + 1 + 2
    received.load_buffers(sent)
    received.array[:] = flat.array
    for name, value in module.state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value)
    assert other.seen == 18 and other.norm.num_batches_tracked == 3
    x = _numbers(5, 4, seed=9)
    torch.testing.assert_close(other.eval()(x), module.eval()(x))
    with pytest.raises(ConfigError, match="_Tied has 12 numbers in its buffers, not 11"):
        received.load_buffers(sent[1:])


def test_a_module_without_buffers_has_an_empty_array():
    flat = FlatParameters(_perceptron())
    assert flat.buffers().shape == (0,)
    flat.load_buffers(flat.buffers())


def test_a_module_without_parameters_is_flat_and_cannot_learn():
    flat = FlatParameters(nn.Tanh())
    assert flat.size == 0
    with pytest.raises(ConfigError, match="Tanh has no parameters to learn"):
        flat.gradient(torch.zeros((), requires_grad=True))


def test_a_flat_module_can_be_flattened_again():
    module = _perceptron()
    first = FlatParameters(module)
    second = FlatParameters(module)
    first.array[:] = 0.0
    assert module[0].weight.any()
    second.array[:] = 0.0
    assert not module[0].weight.any()
    with pytest.raises(ConfigError, match="no longer reads its flat parameters"):
        first.gradient(module(_numbers(2, 3)).sum())


def test_copies_have_separate_parameters():
    module = _perceptron()
    flat = FlatParameters(module)
    twin = FlatParameters(copy.deepcopy(module))
    flat.array[:] = 0.0
    assert twin.array.any()


def test_recurrent_modules_of_torchs_read_the_flat_array():
    module = nn.GRU(3, 4)
    flat = FlatParameters(module)
    x = _numbers(2, 1, 3)
    flat.array[:] = 0.0
    assert not module(x)[0].any()


def test_a_module_that_was_moved_is_noticed():
    module = _perceptron()
    flat = FlatParameters(module)
    module.double().float()
    with pytest.raises(ConfigError, match="Sequential no longer reads its flat parameters"):
        flat.gradient(module(_numbers(2, 3)).sum())


def _with(parameter):
    module = _perceptron()
    module.odd = parameter
    return module


def _apart_on_one_memory():
    module = _perceptron()
    module.odd = nn.Parameter(module[0].weight.data)
    return module


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            _with(nn.Parameter(torch.zeros(2, dtype=torch.float64))),
            r"'odd' is float64.*\.float\(\)",
        ),
        (_with(nn.Parameter(torch.zeros(2, dtype=torch.int64), False)), "is int64.*be a buffer"),
        (_with(nn.Parameter(torch.zeros(2, dtype=torch.complex64))), "is complex64"),
        (_with(nn.LazyLinear(3)), r"'odd.weight' is not initialized: run the module once"),
        (_apart_on_one_memory(), "'0.weight' and 'odd' share memory.*same nn.Parameter"),
    ],
    ids=["float64", "int64", "complex", "lazy", "apart"],
)
def test_a_parameter_that_cannot_be_flattened_raises_with_advice(module, message):
    with pytest.raises(ConfigError, match=message):
        FlatParameters(module)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_parameters_on_a_gpu_are_flat_there():
    module = _perceptron().cuda()
    flat = FlatParameters(module)
    assert flat.tensor.is_cuda
    assert flat.gradient(module(_numbers(2, 3).cuda()).sum()).is_cuda


def test_replaced_or_moved_parameters_are_gathered():
    module = _perceptron()
    flat = FlatParameters(module)
    module[0].weight.data = torch.full_like(module[0].weight, 5.0)
    flat.gather()
    assert (flat.array[: module[0].weight.numel()] == 5.0).all()
