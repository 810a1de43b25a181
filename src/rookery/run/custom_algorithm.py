"""What a run asks of an algorithm of the user's own, complained of by name where it is missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rookery.common.arguments import whole_number
from rookery.errors import ConfigError
from rookery.learn.base import Algorithm
from rookery.rollout import Rollout
from rookery.run.checkpoint.files import as_plain
from rookery.run.log.journal import numbers

_POLICY = ("act", "begin_episodes", "to_env", "value", "is_recurrent", "model", "version")
_MODEL = ("parameters", "extras", "set_extras", "state_dict", "load_state_dict")


def check_settings(algorithm: Algorithm) -> None:
    """Complain of what can be seen before anything starts.

    Raises:
        ConfigError: `Algorithm.num_steps` is no number of steps.
    """
    whole_number(f"num_steps of algorithm {_called(algorithm)}", algorithm.num_steps, 1)


def check_policy(algorithm: Algorithm, policy: Any) -> None:
    """Complain of what `Algorithm.make_policy` returned, if it cannot act in a run and be saved.

    Raises:
        ConfigError: then.
    """
    what = f"make_policy of algorithm {_called(algorithm)} returned"
    way_out = "rookery.TorchPolicy(module, observation_space, action_space) makes one of a module"
    missing = [name for name in _POLICY if not hasattr(policy, name)]
    if missing:
        raise ConfigError(
            f"{what} {_kind(policy)}, which is no rookery.Policy: it lacks {', '.join(missing)}. "
            f"{way_out}"
        )
    missing = [name for name in _MODEL if not hasattr(policy.model, name)]
    if missing:
        raise ConfigError(
            f"{what} a policy whose model, {_kind(policy.model)}, lacks {', '.join(missing)}; it "
            f"has to hold what is learned. {way_out}"
        )


def check_state(algorithm: Algorithm) -> None:
    """Complain of a state that no checkpoint holds, before anything is learned that would be lost.

    Raises:
        ConfigError: `Algorithm.state_dict` gives something else than plain data.
    """
    what = f"state_dict of algorithm {_called(algorithm)}"
    state: Any = algorithm.state_dict()
    if not isinstance(state, Mapping):
        raise ConfigError(f"{what} returned {_kind(state)}, not a dict; {{}} if there is nothing")
    as_plain({"it": state}, f"what {what} returned")


def learn(algorithm: Algorithm, rollout: Rollout, progress: float) -> dict[str, float]:
    """Have it learn from a rollout; return its metrics.

    Raises:
        ConfigError: `Algorithm.update` gives no metrics.
    """
    metrics: Any = algorithm.update(rollout, progress)
    if not isinstance(metrics, Mapping):
        raise ConfigError(
            f"update of algorithm {_called(algorithm)} returned {_kind(metrics)}, not a dict of "
            "metrics by name; {} if there are none"
        )
    return numbers(metrics)


def _called(algorithm: Algorithm) -> str:
    return repr(getattr(algorithm, "name", "") or type(algorithm).__name__)


def _kind(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"
