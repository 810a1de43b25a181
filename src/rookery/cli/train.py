"""``rookery train ALGORITHM ENV`` and ``rookery train --resume RUN_DIR``."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field, fields, make_dataclass
from typing import Annotated, Any

from rookery.cli.arguments import parse, parse_json, print_result
from rookery.errors import UsageError
from rookery.training.algorithms import ALGORITHMS, Algorithm
from rookery.training.interrupt import Terminated
from rookery.training.settings import TrainSettings

try:
    from tyro.conf import OmitArgPrefixes, Positional
except ImportError as error:
    from rookery.errors import MissingExtra

    raise MissingExtra("the command line needs: pip install 'rookery[train]'") from error


@dataclass(frozen=True)
class ResumeCommand:
    """Go on with a run from its last checkpoint. The last line printed is a JSON object.

    Resume runs that you trust: saved states of envs are pickles, and loading them executes code.

    Attributes:
        resume: Folder that rookery train wrote.
        total_steps: A new end of the run; unset, the run's own.
    """

    resume: str
    total_steps: int | None = None


def run(arguments: list[str]) -> int:
    """Train as told and print the result."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    try:
        result = _resume(arguments) if arguments[0].startswith("--") else _train(arguments)
    except Terminated as end:
        print(f"rookery: terminated {end}", file=sys.stderr)
        return int(str(end.code))
    print_result(result)
    return 0


def _train(arguments: list[str]) -> dict[str, Any]:
    name, *rest = arguments
    if name not in ALGORITHMS:
        raise UsageError(f"there is no algorithm {name!r}; {_usage()}")
    command: Any = parse(_command(ALGORITHMS[name]), rest, f"rookery train {name}")
    env_kwargs = parse_json(command.env_kwargs, "--env-kwargs")
    settings = {f.name: getattr(command.train, f.name) for f in fields(command.train)}
    from rookery.training.start import train

    config = command.learner
    return train(command.env, config, env_kwargs=env_kwargs, progress=True, **settings).to_dict()


def _resume(arguments: list[str]) -> dict[str, Any]:
    command = parse(ResumeCommand, arguments, "rookery train")
    from rookery.training.start import resume

    return resume(command.resume, total_steps=command.total_steps, progress=True).to_dict()


def _command(algorithm: Algorithm) -> type[Any]:
    """Make the dataclass of one algorithm's command line."""
    settings = Annotated[TrainSettings, OmitArgPrefixes]
    learner = Annotated[algorithm.config, OmitArgPrefixes]  # type: ignore[name-defined]
    command = make_dataclass(
        f"{algorithm.title}Command",
        [
            ("env", Positional[str]),
            ("env_kwargs", str, "{}"),
            ("train", settings, field(default_factory=TrainSettings)),
            ("learner", learner, field(default_factory=algorithm.config)),
        ],
        frozen=True,
    )
    command.__doc__ = f"""Train a policy with {algorithm.title} on parallel environments.

    The last line printed is a JSON object.

    Attributes:
        env: Gymnasium id, or package.module:Id.
        env_kwargs: Arguments of the env, a JSON object.
        train: the run.
        learner: the learner.
    """
    return command


def _usage() -> str:
    return (
        f"usage: rookery train {{{','.join(ALGORITHMS)}}} ENV [OPTIONS], or rookery train --resume "
        "RUN_DIR [--total-steps N] (rookery train ppo --help lists the options)"
    )
