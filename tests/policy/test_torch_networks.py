"""Networks in torch against plain formulas, torch's own modules, and the numpy actors."""

from __future__ import annotations

import pytest
import torch
from gymnasium import spaces
from torch import nn

from rookery import ConfigError
from rookery.policy.torch.layers import GRU, LSTM, StackedMLP
from rookery.policy.torch.networks import MLP, ActorCritic, SquashedActor
from rookery.policy.torch.value_networks import QNetwork, TwinCritic

VECTOR = spaces.Box(-1, 1, (5,))
ACTIONS = {
    "discrete": spaces.Discrete(3, start=2),
    "multi_discrete": spaces.MultiDiscrete([2, 3]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-1, 1, (2,)),
}


def _generator(seed=0):
    return torch.Generator().manual_seed(seed)


def _numbers(*shape, seed=1):
    return torch.randn(shape, generator=_generator(seed))


def _perturbed(module):
    """Move away from the initial weights, whose zero biases would hide mistakes."""
    for k, parameter in enumerate(module.parameters()):
        parameter.data += 0.1 * _numbers(*parameter.shape, seed=k)
    return module


def test_towers_are_two_plain_perceptrons():
    network = _perturbed(ActorCritic(5, 3, (16, 8), generator=_generator()))
    x = _numbers(7, 5)
    for k in range(2):
        hidden = x
        for layer in network.towers:
            hidden = torch.tanh(hidden @ layer.weight[k] + layer.bias[k])
        head = (network.actor, network.critic)[k]
        expected = hidden @ head.weight + head.bias
        found = network(x)[k]
        torch.testing.assert_close(found, expected[:, 0] if k else expected)


def test_initial_weights_are_orthogonal_and_follow_the_generator_alone():
    before = torch.random.get_rng_state()
    one, same, other = (ActorCritic(5, 3, (5, 5), generator=_generator(s)) for s in (1, 1, 2))
    assert (torch.random.get_rng_state() == before).all()
    for a, b in zip(one.parameters(), same.parameters(), strict=True):
        assert (a == b).all()
    assert (one.actor.weight != other.actor.weight).any()
    for tower in one.towers[1].weight:
        torch.testing.assert_close(tower @ tower.T, 2 * torch.eye(5))
    torch.testing.assert_close(one.actor.weight.T @ one.actor.weight, 1e-4 * torch.eye(3))
    assert one.critic.weight.norm().item() == pytest.approx(1.0)
    assert not one.towers[0].bias.any()


def test_a_perceptron_without_layers_returns_its_input():
    x = _numbers(3, 5)
    assert MLP(5, ())(x) is x
    found = MLP(5, (4,), "relu", _generator())(x)
    assert found.shape == (3, 4) and (found >= 0).all()


def test_an_unknown_activation_or_memory_is_refused():
    with pytest.raises(ConfigError, match="activation must be one of 'tanh', 'relu', got 'swish'"):
        ActorCritic(5, 3, activation="swish")
    with pytest.raises(ConfigError, match="core must be one of 'none', 'gru', 'lstm', got 'rnn'"):
        ActorCritic(5, 3, core="rnn")


# -- memories -------------------------------------------------------------------------------------

_GATES = {
    "gru": (GRU, nn.GRUCell, [0, 1, 2]),
    "lstm": (LSTM, nn.LSTMCell, [0, 1, 2, 3]),
}


@pytest.mark.parametrize("kind", _GATES)
def test_a_memory_advances_as_torchs_own_cell_does(kind):
    core_class, cell_class, _ = _GATES[kind]
    core = _perturbed(core_class(2, 5, 4, _generator()))
    x, memory = _numbers(3, 5), _numbers(3, core.memory_width, seed=2)
    after = core.read(core.step(x, memory))
    for k in range(2):
        cell = cell_class(5, 4)
        with torch.no_grad():
            cell.weight_ih.copy_(core.input.weight[k].T)
            cell.bias_ih.copy_(core.input.bias[k, 0])
            cell.weight_hh.copy_(core.memory.weight[k].T)
            cell.bias_hh.copy_(core.memory.bias[k, 0])
        state = memory.view(3, 2, -1)[:, k]
        if kind == "gru":
            expected = cell(x, state)
        else:
            expected, _ = cell(x, tuple(state.chunk(2, dim=1)))
        torch.testing.assert_close(after[k], expected)


def test_forget_gates_start_open():
    bias = LSTM(2, 5, 4, _generator()).input.bias
    assert (bias[..., 4:8] == 1).all() and bias.sum() == 8


@pytest.mark.parametrize("core", ["gru", "lstm"])
@pytest.mark.parametrize("hidden_sizes", [(), (6,)])
def test_unrolling_is_stepping_with_forgetting(core, hidden_sizes):
    network = _perturbed(
        ActorCritic(5, 3, hidden_sizes, core=core, core_size=4, generator=_generator())
    )
    x = _numbers(6, 3, 5)
    begins = torch.rand(6, 3, generator=_generator(9)) < 0.3
    assert begins.any()
    first = memory = _numbers(3, network.memory_width, seed=4)
    steps = []
    for t in range(6):
        memory = torch.where(begins[t, :, None], 0.0, memory)
        steps.append(network(x[t], memory))
        memory = steps[-1].memory
    unrolled = network.unroll(x, begins, first)
    for found, stepped in zip(unrolled, zip(*steps, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(stepped))


# -- other networks -------------------------------------------------------------------------------


@pytest.mark.parametrize("hidden_sizes", [(), (8,)])
def test_dueling_values_are_wangs_equation(hidden_sizes):
    network = _perturbed(QNetwork(5, 3, hidden_sizes, dueling=True, generator=_generator()))
    x = _numbers(7, 5)
    hidden = network.towers(x) if hidden_sizes else torch.stack([x, x])
    advantage, value = network.actor(hidden[0]), network.critic(hidden[1])
    expected = value + advantage - advantage.mean(dim=1, keepdim=True)
    torch.testing.assert_close(network(x), expected)


def test_values_that_are_not_dueling_have_one_tower():
    network = _perturbed(QNetwork(5, 3, (8,), dueling=False, generator=_generator()))
    assert [tuple(p.shape) for p in network.parameters()] == [(1, 5, 8), (1, 1, 8), (8, 3), (3,)]
    x = _numbers(7, 5)
    (layer,) = network.towers
    hidden = torch.tanh(x @ layer.weight[0] + layer.bias[0])
    torch.testing.assert_close(network(x), hidden @ network.actor.weight + network.actor.bias)


def test_critics_are_computed_as_if_one_by_one():
    critic = _perturbed(TwinCritic(5, 2, (8, 8), num_critics=3, generator=_generator()))
    x, action = _numbers(7, 5), _numbers(7, 2, seed=2)
    values = critic(x, action)
    assert values.shape == (3, 7)
    first, second, last = critic.layers
    for k in range(3):
        hidden = torch.cat([x, action], dim=1)
        for layer in (first, second):
            hidden = torch.relu(hidden @ layer.weight[k] + layer.bias[k])
        torch.testing.assert_close(values[k], (hidden @ last.weight[k] + last.bias[k])[:, 0])


def test_critics_have_different_initial_weights():
    critic = TwinCritic(5, 2, generator=_generator())
    values = critic(_numbers(7, 5), _numbers(7, 2))
    assert (values[0] != values[1]).any()


def test_sac_starts_near_the_middle_of_the_range():
    actor = SquashedActor(5, 2, (8,), generator=_generator())
    outputs = actor(_numbers(7, 5))
    assert outputs.shape == (7, 4) and outputs.abs().max() < 0.1


def test_a_stack_of_one_takes_rows():
    stack = StackedMLP(1, (5, 4, 2), "relu", 1.0, _generator())
    assert stack(_numbers(3, 5)).shape == (1, 3, 2)
