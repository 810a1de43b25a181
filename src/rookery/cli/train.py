"""``rookery train ppo ENV``."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Annotated

from rookery.cli.arguments import parse, parse_json, print_result
from rookery.errors import UsageError
from rookery.learn.config import PPOConfig
from rookery.training.settings import TrainSettings

try:
    from tyro.conf import OmitArgPrefixes, Positional
except ImportError as error:
    from rookery.errors import MissingExtra

    raise MissingExtra("the command line needs: pip install 'rookery[train]'") from error

ALGORITHMS = ("ppo",)


@dataclass(frozen=True)
class PPOCommand:
    """Train a policy with PPO on parallel environments. The last line printed is a JSON object.

    Attributes:
        env: Gymnasium id, or package.module:Id.
        env_kwargs: Arguments of the env, a JSON object.
        train: the run.
        ppo: the learner.
    """

    env: Positional[str]
    env_kwargs: str = "{}"
    train: Annotated[TrainSettings, OmitArgPrefixes] = field(default_factory=TrainSettings)
    ppo: Annotated[PPOConfig, OmitArgPrefixes] = field(default_factory=PPOConfig)


def run(arguments: list[str]) -> int:
    """Train as told and print the result."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    algorithm, *rest = arguments
    if algorithm not in ALGORITHMS:
        raise UsageError(f"there is no algorithm {algorithm!r}; {_usage()}")
    command = parse(PPOCommand, rest, f"rookery train {algorithm}")
    env_kwargs = parse_json(command.env_kwargs, "--env-kwargs")
    settings = {f.name: getattr(command.train, f.name) for f in fields(command.train)}
    from rookery.training.loop import train

    result = train(command.env, command.ppo, env_kwargs=env_kwargs, progress=True, **settings)
    print_result(result.to_dict())
    return 0


def _usage() -> str:
    return (
        f"usage: rookery train {{{','.join(ALGORITHMS)}}} ENV [OPTIONS] "
        "(rookery train ppo --help lists the options)"
    )
