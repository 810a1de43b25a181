"""The whole policy as one module: normalization, custom parts, checkpoints and export."""

from __future__ import annotations

import io
import pickle

import numpy as np
import pytest
import torch
from gymnasium import spaces
from gymnasium.vector.utils import batch_space
from torch import nn

from rookery import ConfigError
from rookery.policy.actions import action_layout
from rookery.policy.model import FlatParameters
from rookery.policy.torch.encoders import OBS_LIMIT, ObservationNormalizer, to_tensors
from rookery.policy.torch.export import DeterministicPolicy
from rookery.policy.torch.images import ImpalaCNN
from rookery.policy.torch.networks import MLP, SquashedActor
from rookery.policy.torch.policy_module import PolicyModule
from rookery.policy.torch.value_networks import QNetwork
from rookery.rollout.normalize import RunningMoments

VECTOR = spaces.Box(-1, 1, (5,))
SMALL_IMAGE = spaces.Box(0, 255, (8, 8, 3), np.uint8)
NESTED = spaces.Dict(
    a=spaces.Discrete(3),
    b=spaces.Tuple([spaces.Box(-9, 9, (2, 2)), SMALL_IMAGE]),
    c=spaces.Box(0, 255, (3,), np.uint8),
)
ACTIONS = {
    "discrete": spaces.Discrete(3, start=2),
    "multi_discrete": spaces.MultiDiscrete([2, 3], start=[1, 0]),
    "multi_binary": spaces.MultiBinary(3),
    "box": spaces.Box(-0.01, 0.01, (2,)),
    "number": spaces.Box(-1, 1, ()),
    "joint": spaces.Dict(a=spaces.Discrete(2), b=spaces.Tuple([spaces.Box(-1, 1, (1,))])),
}


def _observations(space, size=6, seed=0):
    batched = batch_space(space, size)
    batched.seed(seed)
    return batched.sample()


def _perturbed(module):
    for k, parameter in enumerate(module.parameters()):
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(k))
        parameter.data += 0.1 * noise
    return module


# -- normalisation --------------------------------------------------------------------------------


def test_numbers_are_normalised_and_nothing_else():
    normalizer = ObservationNormalizer(NESTED)
    batches = [_observations(NESTED, 20, seed) for seed in range(3)]
    moments = RunningMoments((7,))
    for obs in batches:
        normalizer.observe(obs)
        rows = [obs["b"][0].reshape(20, 4), obs["c"] / np.float32(255)]
        moments.update(np.concatenate(rows, axis=1))
    obs = _observations(NESTED, 20, 9)
    found = normalizer(to_tensors(obs))
    rows = np.concatenate([obs["b"][0].reshape(20, 4), obs["c"] / np.float32(255)], axis=1)
    expected = moments.normalize(rows, OBS_LIMIT)
    np.testing.assert_allclose(found["b"][0].reshape(20, 4), expected[:, :4], atol=1e-5)
    np.testing.assert_allclose(found["c"], expected[:, 4:], atol=1e-5)
    np.testing.assert_array_equal(found["a"], obs["a"])
    np.testing.assert_array_equal(found["b"][1], obs["b"][1])


def test_far_numbers_are_clipped():
    normalizer = ObservationNormalizer(VECTOR)
    normalizer.observe(np.random.default_rng(0).normal(size=(50, 5)).astype(np.float32))
    assert normalizer(torch.full((1, 5), 1e6)).tolist() == [[10.0] * 5]


def test_without_samples_observations_do_not_change():
    obs = torch.rand(4, 5)
    torch.testing.assert_close(ObservationNormalizer(VECTOR)(obs), obs)


def test_statistics_and_parameters_survive_a_file():
    first, second = (
        PolicyModule(NESTED, ACTIONS["box"], normalize_obs=True, seed=s) for s in (1, 2)
    )
    obs = _observations(NESTED)
    first.observe(obs)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    tensors = to_tensors(obs)
    torch.testing.assert_close(first(tensors).outputs, second(tensors).outputs)
    for policy in (first, second):  # both go on alike
        policy.observe(_observations(NESTED, seed=5))
    torch.testing.assert_close(first(tensors).value, second(tensors).value)
    assert second.normalizer.moments.count == 12


def test_buffers_contain_the_statistics_for_acting():
    first, second = (
        PolicyModule(VECTOR, ACTIONS["box"], normalize_obs=True, seed=s) for s in (1, 2)
    )
    first.observe(_observations(VECTOR))
    sender, receiver = FlatParameters(first), FlatParameters(second)
    receiver.array[:] = sender.array
    receiver.load_buffers(sender.buffers())
    obs = to_tensors(_observations(VECTOR, seed=3))
    torch.testing.assert_close(first(obs).outputs, second(obs).outputs)


# -- parts of one's own ---------------------------------------------------------------------------


def test_seeds_determine_weights_including_custom_encoders():
    def build(seed):
        return PolicyModule(
            VECTOR, ACTIONS["box"], encoder=lambda space: nn.Linear(5, 7), seed=seed
        )

    before = torch.random.get_rng_state()
    one, same, other = build(1), build(1), build(2)
    assert (torch.random.get_rng_state() == before).all()
    arrays = [FlatParameters(policy).array for policy in (one, same, other)]
    np.testing.assert_array_equal(arrays[0], arrays[1])
    assert (arrays[0] != arrays[2]).any()


class _Length(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.linear = nn.LazyLinear(3)  # knows its width when it is run

    def forward(self, texts):
        return self.linear(torch.tensor([[float(len(text)), 1.0] for text in texts]))


def test_a_custom_encoder_reads_text():
    policy, same = (PolicyModule(spaces.Text(9), ACTIONS["box"], encoder=_Length) for _ in range(2))
    found = policy(("one", "three"))
    assert found.outputs.shape == (2, 2)
    np.testing.assert_array_equal(FlatParameters(policy).array, FlatParameters(same).array)
    torch.testing.assert_close(same(("one", "three")).value, found.value)


def test_a_policy_is_pickled_with_its_flat_parameters():
    policy = _perturbed(PolicyModule(NESTED, ACTIONS["joint"], normalize_obs=True, core="lstm"))
    policy.observe(_observations(NESTED))
    plain_size = len(pickle.dumps(policy))
    sent = pickle.dumps(FlatParameters(policy))
    assert len(sent) < 1.1 * plain_size
    copy = pickle.loads(sent)
    obs, memory = to_tensors(_observations(NESTED, seed=3)), torch.rand(6, policy.memory_width)
    for ours, theirs in zip(policy(obs, memory), copy.module(obs, memory), strict=True):
        torch.testing.assert_close(ours, theirs)
    copy.array[:] = 0.0
    assert not copy.module(obs, memory).value.any() and policy(obs, memory).value.any()


def test_both_heads_train_a_custom_encoder():
    policy = PolicyModule(VECTOR, ACTIONS["box"], encoder=lambda space: MLP(5, (7,)))
    assert policy.network.actor.weight.shape == (7, 2)
    obs = to_tensors(_observations(VECTOR))
    weight = policy.encoder.layers[0].weight
    for k in range(2):
        (gradient,) = torch.autograd.grad(policy(obs)[k].sum(), weight)
        assert gradient.any()


def test_hidden_sizes_apply_behind_a_custom_encoder():
    policy = PolicyModule(
        VECTOR, ACTIONS["box"], encoder=lambda space: MLP(5, (7,)), hidden_sizes=(4,)
    )
    assert policy.network.towers[0].weight.shape == (2, 7, 4)


def test_random_observations_do_not_change_batch_statistics():
    policy = PolicyModule(VECTOR, ACTIONS["box"], encoder=lambda space: nn.BatchNorm1d(5))
    assert policy.encoder.num_batches_tracked == 0
    assert policy.training and policy.encoder.training


def test_images_may_be_read_by_another_network():
    policy = PolicyModule(
        SMALL_IMAGE, ACTIONS["discrete"], image=ImpalaCNN, core="lstm", core_size=4
    )
    assert isinstance(policy.encoder.parts[0], ImpalaCNN)
    assert policy.memory_width == 2 * 2 * 4


class _Whole(nn.Module):
    def __init__(self, observation_space, action_space):
        super().__init__()
        outputs = action_layout(action_space).num_outputs
        self.body, self.value = nn.Linear(5, outputs), nn.Linear(5, 1)

    def forward(self, obs):
        return self.body(obs), self.value(obs)[:, 0]


def test_a_custom_network_replaces_encoder_and_towers():
    policy = PolicyModule(VECTOR, ACTIONS["box"], network=_Whole, normalize_obs=True)
    obs = to_tensors(_observations(VECTOR))
    found = policy(obs)
    torch.testing.assert_close(found.outputs, policy.network.body(obs))
    assert found.memory is None
    assert [name for name, _ in policy.named_parameters()][-1] == "head.log_std"
    gradient = FlatParameters(policy).gradient(
        policy.distribution(found.outputs).entropy().sum() + found.value.sum()
    )
    assert gradient[-2:].tolist() == [6.0, 6.0]


class _Triple(_Whole):
    def forward(self, obs):
        return (*super().forward(obs), None)


class _Counting(nn.Module):
    """Remembers how many steps its episode has had; knows no value."""

    memory_width = 1

    def __init__(self, observation_space, action_space):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, obs, memory):
        memory = memory + 1
        outputs = self.scale * memory.expand(-1, 2)
        return outputs, memory[:, 0] * obs[:, 0], memory


def test_a_custom_network_may_be_recurrent():
    policy = PolicyModule(VECTOR, ACTIONS["box"], network=_Counting)
    begins = torch.tensor([[True, False], [False, False], [False, True]])
    obs = torch.ones(3, 2, 5)
    found = policy.unroll(obs, begins, torch.tensor([[9.0], [4.0]]))
    assert found.memory[..., 0].tolist() == [[1, 5], [2, 6], [3, 1]]
    assert found.outputs[..., 1].tolist() == found.value.tolist() == [[1, 5], [2, 6], [3, 1]]


def test_outputs_alone_are_enough_for_action_values():
    policy = PolicyModule(
        VECTOR,
        ACTIONS["discrete"],
        build=lambda size, _, layout, generator: QNetwork(
            size, layout.num_outputs, (8,), generator=generator
        ),
    )
    found = policy(to_tensors(_observations(VECTOR)))
    assert not found.value.any()
    best = policy.distribution(found.outputs).mode()
    np.testing.assert_array_equal(best[:, 0], found.outputs.argmax(1))


def test_a_squashed_policy_has_no_deviation_parameter():
    policy = PolicyModule(
        VECTOR,
        ACTIONS["box"],
        squashed=True,
        build=lambda size, _, layout, generator: SquashedActor(size, 2, (8,), generator=generator),
    )
    assert policy.head.log_std is None
    outputs = policy(to_tensors(_observations(VECTOR))).outputs
    action = policy.distribution(outputs).sample(torch.Generator().manual_seed(0)).numpy()
    for one in policy.layout.to_env(policy.layout.decode(action)):
        assert ACTIONS["box"].contains(one)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"network": lambda *spaces: nn.Linear(5, 3)},
            r"network Linear must return outputs of shape \[2, 2\].*it returned \[2, 3\]",
        ),
        (
            {"encoder": lambda space: nn.Unflatten(1, (1, 5))},
            r"encoder Unflatten must convert.*it returned torch.float32 \[2, 1, 5\]",
        ),
        ({"encoder": lambda space: torch.tanh}, "encoder must be .* returned a builtin"),
        ({"encoder": {"": lambda space: 1}}, r"encoder\[''\] must be .* it returned a int"),
        ({"network": lambda *spaces: 1}, "network must be a callable .* it returned a int"),
        (
            {"network": _Triple},
            "network _Triple must return outputs, or a tuple.* it returned a tuple",
        ),
        (
            {"network": _Whole, "encoder": lambda space: nn.Linear(5, 2)},
            r"network= and encoder= exclude each other",
        ),
    ],
    ids=["outputs", "features", "function", "part", "number", "triple", "both"],
)
def test_a_wrong_module_is_named_when_the_policy_is_built(options, message):
    with pytest.raises(ConfigError, match=message):
        PolicyModule(VECTOR, ACTIONS["box"], **options)


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_recurrent_policies_read_images(core):
    policy = _perturbed(PolicyModule(NESTED, ACTIONS["joint"], core=core, core_size=4))
    steps = [to_tensors(_observations(NESTED, 3, seed)) for seed in range(4)]
    begins = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) < 0.4
    memory = policy.initial_memory(3)
    one_by_one = []
    for t, obs in enumerate(steps):
        memory = torch.where(begins[t, :, None], 0.0, memory)
        one_by_one.append(policy(obs, memory))
        memory = one_by_one[-1].memory
    stacked = {
        "a": torch.stack([obs["a"] for obs in steps]),
        "b": tuple(torch.stack([obs["b"][k] for obs in steps]) for k in range(2)),
        "c": torch.stack([obs["c"] for obs in steps]),
    }
    unrolled = policy.unroll(stacked, begins, policy.initial_memory(3))
    for found, expected in zip(unrolled, zip(*one_by_one, strict=True), strict=True):
        torch.testing.assert_close(found, torch.stack(expected), atol=1e-5, rtol=1e-4)


# -- export ---------------------------------------------------------------------------------------


def _leaves(tree):
    if isinstance(tree, dict):
        return [leaf for key in sorted(tree) for leaf in _leaves(tree[key])]
    if isinstance(tree, (tuple, list)):
        return [leaf for branch in tree for leaf in _leaves(branch)]
    return [tree.detach().numpy() if isinstance(tree, torch.Tensor) else np.asarray(tree)]


def _expected(policy, obs):
    rows = policy.distribution(policy(to_tensors(obs)).outputs).mode()
    return policy.layout.to_env(policy.layout.decode(rows.detach().numpy()))


@pytest.mark.parametrize("action", ACTIONS)
def test_exported_actions_are_those_of_the_policy(action):
    policy = _perturbed(PolicyModule(VECTOR, ACTIONS[action], normalize_obs=True))
    policy.observe(_observations(VECTOR))
    obs = _observations(VECTOR, 8, 3)
    found = DeterministicPolicy(policy)(to_tensors(obs))
    for ours, theirs in zip(_leaves(_expected(policy, obs)), _leaves(found), strict=True):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("action", ["discrete", "box"])
@pytest.mark.parametrize("space", [VECTOR, SMALL_IMAGE], ids=["vector", "image"])
def test_a_traced_policy_acts_alike_on_any_number_of_rows(space, action):
    policy = _perturbed(PolicyModule(space, ACTIONS[action], normalize_obs=True)).eval()
    policy.observe(_observations(space))
    example = (to_tensors(_observations(space, 2)),)
    traced = torch.jit.trace(DeterministicPolicy(policy), example, strict=False)
    obs = _observations(space, 5, 3)
    for ours, theirs in zip(
        _leaves(_expected(policy, obs)), _leaves(traced(to_tensors(obs))), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


def test_an_exported_program_acts_alike():
    policy = _perturbed(PolicyModule(NESTED, ACTIONS["joint"], normalize_obs=True)).eval()
    policy.observe(_observations(NESTED))
    program = torch.export.export(DeterministicPolicy(policy), (to_tensors(_observations(NESTED)),))
    obs = _observations(NESTED, 6, 3)
    found = program.module()(to_tensors(obs))
    for ours, theirs in zip(_leaves(_expected(policy, obs)), _leaves(found), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_recurrent_policy_is_exported_with_its_memory():
    policy = _perturbed(PolicyModule(VECTOR, ACTIONS["discrete"], core="gru", core_size=4)).eval()
    obs, memory = to_tensors(_observations(VECTOR, 2)), policy.initial_memory(2)
    traced = torch.jit.trace(DeterministicPolicy(policy), (obs, memory))
    obs, memory = to_tensors(_observations(VECTOR, 7, 1)), torch.rand(7, policy.memory_width)
    found = policy(obs, memory)
    action, after = traced(obs, memory)
    torch.testing.assert_close(after, found.memory)
    np.testing.assert_array_equal(action, policy.distribution(found.outputs).mode()[:, 0] + 2)
