"""``rookery tune [ALGORITHM] ENV [OPTIONS]``."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, make_dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rookery.cli.arguments import checked_output, parse, parse_json, print_result
from rookery.cli.train import ENV, command_of, given, unknown_algorithm
from rookery.errors import ConfigError
from rookery.run.algorithms import BUILT_IN, Given
from rookery.run.families import wrapper_at
from rookery.run.presets import find_preset
from rookery.tuning.memory import parse_memory
from rookery.tuning.outcome import Outcome, draw, print_trials
from rookery.tuning.search import tune

try:
    from tyro.conf import OmitArgPrefixes
except ImportError as error:
    from rookery.errors import MissingExtra

    raise MissingExtra("this command needs tyro: pip install 'rookery[train]'") from error

HYPERPARAMETERS = "--hyperparameters"

_FORMATS = (".png", ".pdf", ".svg")


@dataclass(frozen=True)
class TuneSettings:
    """Settings of a search.

    Attributes:
        minutes: Approximate duration of the search. Default: 2, or up to 10 if envs start so slowly
            that 2 minutes do not suffice to try each candidate once.
        memory: Largest amount of memory for a run, such as 6G or 800M. Default: the memory that is
            available in the machine or container.
        max_envs: Largest number of envs to try. Default: 64 for each CPU.
        whole_loop: Compare env steps per second of collecting and learning together, instead of
            collecting alone.
        output: File for the settings that were found; rookery train --tuned reads it.
        picture: File for a plot of throughput against the number of envs. Default: beside the
            output.
    """

    minutes: float | None = None
    memory: str | None = None
    max_envs: int | None = None
    whole_loop: bool = False
    output: str = "tuned.json"
    picture: str | None = None


def run(arguments: list[str]) -> int:
    """Search, print all candidates, and write the best settings."""
    if HYPERPARAMETERS in arguments:
        from rookery.cli.tune_hyperparameters import run as run_hyperparameters

        return run_hyperparameters([each for each in arguments if each != HYPERPARAMETERS])
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    return _tune_parallelism(arguments)


def _tune_parallelism(arguments: list[str]) -> int:
    name, rest = _algorithm(arguments)
    command: Any = parse(_command(name), rest, f"rookery tune {name}", lambda: _short_command(name))
    search: TuneSettings = command.tune
    output, picture = _places(search)
    preset = find_preset(name, command.env, command.preset.preset, command.envs.env_module)
    settings, learner = given(command, rest)
    settings.pop("preset", None)
    outcome = tune(
        command.env,
        Given(name, learner) if preset is None else replace(preset, changes=learner),
        minutes=search.minutes,
        memory=None if search.memory is None else parse_memory(search.memory),
        max_envs=search.max_envs,
        whole_loop=search.whole_loop,
        env_kwargs=parse_json(command.env_kwargs, "--env-kwargs"),
        wrappers=[wrapper_at(address) for address in command.wrapper],
        say=_say,
        **settings,
    )
    outcome.tuned.write(output)
    draw(outcome, picture, search.whole_loop)
    print_trials(outcome.trials, outcome.chosen)
    for line in _conclusion(outcome, name, command.env, output):
        print(line)
    figures = outcome.tuned.figures
    print_result(
        {
            "output": str(output),
            "picture": str(picture),
            **outcome.tuned.settings,
            "steps_per_second": round(figures["steps_per_second"], 1),
            "binds": outcome.limits.binds,
            "interrupted": outcome.tuned.interrupted,
        }
    )
    return 130 if outcome.tuned.interrupted else 0


def _algorithm(arguments: Sequence[str]) -> tuple[str, list[str]]:
    """Return the algorithm, by default ppo, and the other arguments.

    Raises:
        UsageError: the algorithm is unknown.
    """
    first, *rest = arguments
    if first in BUILT_IN:
        return first, rest
    is_flag = first.startswith("--")
    if not is_flag and rest and not rest[0].startswith("--"):
        raise unknown_algorithm(first, rest[0], "rookery tune", _usage())
    return "ppo", list(arguments)


def _command(name: str) -> type[Any]:
    """Return the dataclass of the command line: the settings of a run and of a search."""
    base = command_of(name)
    search = Annotated[TuneSettings, OmitArgPrefixes]
    own = [(each.name, each.type, each) for each in fields(base)]
    command = make_dataclass(
        f"Tune{name.title()}Command",
        [*own, ("tune", search, TuneSettings())],
        frozen=True,
    )
    of_run = (base.__doc__ or "").partition("Attributes:\n")[2].rstrip()
    command.__doc__ = f"""Find the fastest parallel settings for {name.upper()} on this machine.

    Settings given on the command line stay fixed; the others are searched. The last line printed
    is a JSON object.

    Attributes:
{of_run}
        tune: the search.
    """
    return command


def _short_command(name: str) -> type[Any]:
    """Return the dataclass whose ``--help`` lists the options of a search."""
    search = Annotated[TuneSettings, OmitArgPrefixes]
    options: list[Any] = [ENV, ("tune", search, TuneSettings())]
    command = make_dataclass(f"Tune{name.title()}Command", options, frozen=True)
    command.__doc__ = f"""Find the fastest parallel settings for {name.upper()} on this machine.

    Settings of rookery train that you give stay fixed; the others are searched. The last line
    printed is a JSON object.

    Attributes:
        env: Gymnasium id, or package.module:Id.
    """
    return command


def _places(search: TuneSettings) -> tuple[Path, Path]:
    """Return the paths of file and picture, after checking that they can be written.

    Raises:
        ConfigError: a file cannot be written, or both are the same.
    """
    output = checked_output(search.output, ())
    wanted = search.picture if search.picture is not None else str(output.with_suffix(".png"))
    picture = checked_output(wanted, _FORMATS, "--picture")
    if output == picture:
        raise ConfigError(f"--output and --picture are both {output}; choose another")
    return output, picture


def _conclusion(outcome: Outcome, name: str, env: str, output: Path) -> list[str]:
    """Return lines of text that explain the result."""
    settings = outcome.tuned.settings
    lines = [*outcome.limits.lines, *outcome.reasons]
    command = f"rookery train {name} {env} --tuned {output}"
    if outcome.tuned.interrupted:
        lines.append("the search was interrupted: these are the best settings found so far")
    if settings["collector"] == "async":
        lines.append(
            "the async collector may use older weights, and runs with equal seeds differ; "
            "to avoid this, give another --collector"
        )
    if not settings.get("scale_hyperparameters"):
        lines.append(
            f"{settings['num_envs']} envs may need other hyperparameters: --scale-hyperparameters "
            "adapts them"
        )
    return [*lines, f"train with these settings: {command}"]


def _say(line: str) -> None:
    print(f"rookery: {line}", file=sys.stderr, flush=True)


def _usage() -> str:
    return (
        f"usage: rookery tune [{{{','.join(BUILT_IN)}}}] ENV [OPTIONS], by default with ppo "
        "(rookery tune ppo --help lists the options; given options of rookery train stay fixed), "
        f"or rookery tune {HYPERPARAMETERS} ALGORITHM ENV [OPTIONS], which searches for "
        "hyperparameters"
    )
