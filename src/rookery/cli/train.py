"""``rookery train ALGORITHM ENV [OPTIONS]`` and ``rookery train --resume RUN_DIR [OPTIONS]``."""

from __future__ import annotations

import sys
from dataclasses import fields, make_dataclass, replace
from textwrap import indent
from typing import Annotated, Any, get_type_hints

from rookery.cli.arguments import flag_of, parse, parse_json, print_result
from rookery.common.arguments import did_you_mean
from rookery.common.docstrings import attribute_texts
from rookery.errors import ConfigError, UsageError
from rookery.learn.config_base import Config, Scheduled
from rookery.run.algorithms import BUILT_IN, Given
from rookery.run.families import wrapper_at
from rookery.run.interrupt import Terminated
from rookery.run.learners.open_learners import is_other_learner
from rookery.run.presets import AUTO, find_preset
from rookery.run.settings import TOPICS, TrainSettings

try:
    from tyro.conf import OmitArgPrefixes, Positional, UseAppendAction, arg
except ImportError as error:
    from rookery.errors import MissingExtra

    raise MissingExtra("this command needs tyro: pip install 'rookery[train]'") from error

# The options that ``--help`` shows; ``--help-all`` shows all.
MOST_USED = (
    "total_steps", "num_envs", "seed", "run_dir", "overwrite", "preset", "backend", "num_workers",
    "eval_every", "eval_episodes", "learning_rate", "gamma", "hidden_sizes", "num_steps",
    "minibatch_size", "batch_size",
)  # fmt: skip
ENV: Any = ("env", Positional[Annotated[str, arg(metavar="ENV")]])  # field of a dataclass
_ENV_OPTIONS: list[Any] = [
    ("env_kwargs", str, "{}"),
    ("wrapper", UseAppendAction[tuple[str, ...]], ()),
]


def run(arguments: list[str]) -> int:
    """Train and print the result."""
    if not arguments or arguments[0] in ("-h", "--help"):
        print(_usage())
        return 0 if arguments else 2
    try:
        result = _resume(arguments) if arguments[0].startswith("--") else _train(arguments)
    except Terminated as end:
        print(f"rookery: terminated {end}", file=sys.stderr)
        return int(str(end.code))
    if not is_other_learner():
        print_result(result)
    return 0


def _train(arguments: list[str]) -> dict[str, Any]:
    name, *rest = arguments
    if name not in BUILT_IN:
        raise unknown_algorithm(name, rest[0] if rest else "", "rookery train", _usage())
    if "resume" in map(flag_of, rest):
        raise UsageError(
            "--resume takes algorithm and env from the run; leave these out: rookery train "
            "--resume RUN_DIR [OPTIONS]"
        )
    program = f"rookery train {name}"
    command: Any = parse(command_of(name), rest, program, lambda: short_command_of(name))
    preset = find_preset(name, command.env, command.preset.preset, command.envs.env_module)
    env_kwargs = parse_json(command.env_kwargs, "--env-kwargs")
    settings, learner = given(command, rest)
    settings.pop("preset", None)
    from rookery.run.loop import train

    result = train(
        command.env,
        Given(name, learner) if preset is None else replace(preset, changes=learner),
        env_kwargs=env_kwargs,
        wrappers=[wrapper_at(address) for address in command.wrapper],
        progress=True,
        **settings,
    )
    return result.to_dict()


def unknown_algorithm(name: str, env: str, program: str, usage: str) -> UsageError:
    """Return the error for an unknown algorithm.

    Args:
        name: name of the algorithm.
        env: the argument after it; if that is an algorithm, both were exchanged.
        program: the command that messages name.
        usage: the end of the message.
    """
    hint = f"{did_you_mean(name, BUILT_IN)} ".lstrip()
    if env in BUILT_IN:
        hint = f"the algorithm comes first: {program} {env} {name}; "
    return UsageError(f"unknown algorithm {name!r}; {hint}{usage}")


def command_of(name: str, present: TrainSettings | None = None) -> type[Any]:
    """Return the dataclass for the command line of one algorithm, with a part for each topic.

    Args:
        name: name of the algorithm.
        present: settings of the run to resume, used as defaults; None for a new run.
    """
    defaults = present or TrainSettings(preset=AUTO)
    config = BUILT_IN[name][0]
    parts: list[tuple[str, Any, Any]] = [
        (topic, Annotated[kind, OmitArgPrefixes], _of_topic(kind, defaults))
        for topic, kind in TOPICS.items()
    ]
    flags = _flags(config)
    parts.append(("learner", Annotated[flags, OmitArgPrefixes], flags()))
    command = make_dataclass(f"{name.title()}Command", [ENV, *_ENV_OPTIONS, *parts], frozen=True)
    command.__doc__ = f"""Train a policy with {name.upper()} on parallel environments.

    The last line printed is a JSON object.

    Attributes:
        env: Gymnasium id, or package.module:Id.
        env_kwargs: Arguments of the env, as a JSON object.
        wrapper: Wrapper of every env, as module:Class or module:function. Repeat the flag for
            several wrappers; the first one is the innermost.
    """
    return command


def short_command_of(name: str) -> type[Any]:
    """Return the dataclass whose ``--help`` lists the most used options of one algorithm."""
    config = BUILT_IN[name][0]
    flags = _flags(config)
    kinds = get_type_hints(TrainSettings) | get_type_hints(flags)
    default = {each.name: each.default for kind in (TrainSettings, flags) for each in fields(kind)}
    default["preset"] = AUTO
    names = [each for each in MOST_USED if each in default]
    options = [(each, kinds[each], default[each]) for each in names]
    command = make_dataclass(f"{name.title()}Command", [ENV, *options], frozen=True)
    texts = attribute_texts(TrainSettings) | attribute_texts(flags)
    command.__doc__ = f"""Train a policy with {name.upper()} on parallel environments.

    These are the most used options. The last line printed is a JSON object.

    Attributes:
        env: Gymnasium id, or package.module:Id.
{indent("".join(texts[each] for each in names), "    ")}
    """
    return command


def _of_topic(kind: type[Any], settings: TrainSettings) -> Any:
    """Return the settings of one topic."""
    return kind(**{each.name: getattr(settings, each.name) for each in fields(kind)})


def _flags(config: type[Config]) -> type[Any]:
    """Return a dataclass with an algorithm's settings; schedules become plain numbers."""
    kinds = get_type_hints(config)
    flags = [
        (f.name, float if kinds[f.name] == Scheduled else kinds[f.name], f.default)
        for f in fields(config)  # type: ignore[arg-type]
    ]
    made = make_dataclass(config.__name__, flags, frozen=True)
    texts = attribute_texts(config)
    made.__doc__ = f"Hyperparameters of the algorithm.\n\nAttributes:\n{''.join(texts.values())}"
    return made


def _resume(arguments: list[str]) -> dict[str, Any]:
    """Resume a run with the settings that the arguments change."""
    arguments = [part for argument in arguments for part in _split(argument)]
    if "--resume" not in arguments[:-1]:
        flags = [f"--{flag_of(argument)}" for argument in arguments if flag_of(argument)]
        near = [hint for flag in flags if (hint := did_you_mean(flag, ["--resume", "--help"]))]
        hint = f"{near[0]} " if near and "--resume" not in flags else ""
        raise UsageError(f"give an algorithm, or --resume RUN_DIR; {hint}{_usage()}")
    place = arguments.index("--resume")
    run_dir = arguments[place + 1]
    rest = arguments[:place] + arguments[place + 2 :]
    from rookery.run.checkpoint.run_dir import RunDirectory
    from rookery.run.loop import resume

    changes = _changes(RunDirectory.existing(run_dir).read_config(), rest)
    return resume(run_dir, progress=True, **changes).to_dict()


def given(command: Any, arguments: list[str]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings that the arguments name: those of the run, and those of the learner."""
    named = {flag for argument in arguments if (flag := flag_of(argument))}
    named |= {flag.removeprefix("no-") for flag in named}

    def of_part(part: Any) -> dict[str, Any]:
        names = [f.name for f in fields(part) if f.name.replace("_", "-") in named]
        return {name: getattr(part, name) for name in names}

    settings = dict[str, Any]()
    for topic in TOPICS:
        settings |= of_part(getattr(command, topic))
    return settings, of_part(command.learner)


def _split(argument: str) -> list[str]:
    return argument.split("=", 1) if argument.startswith("--") else [argument]


def _changes(config: dict[str, Any], arguments: list[str]) -> dict[str, Any]:
    """Return the settings that the arguments change, parsed for the run's algorithm."""
    name = config.get("algo")
    if not arguments:
        return {}
    if name not in BUILT_IN:
        raise UsageError(
            f"settings of custom algorithm {name!r} cannot be changed on the command line; call "
            "rookery.resume"
        )
    try:
        present = TrainSettings.from_dict(config.get("train") or {}, "settings of a run")
    except (ConfigError, TypeError):  # raised later, with the file's name
        present = TrainSettings()
    program = "rookery train --resume RUN_DIR"
    command: Any = parse(command_of(name, present), ["env", *arguments], program)
    settings, learner = given(command, arguments)
    changes = {**settings, **learner}
    if "run_dir" in changes:
        raise UsageError(
            "--run-dir cannot be combined with --resume: a run stays in its folder; leave it out"
        )
    flags = set(map(flag_of, arguments))
    if "env-kwargs" in flags:
        changes["env_kwargs"] = parse_json(command.env_kwargs, "--env-kwargs")
    if "wrapper" in flags:
        changes["wrappers"] = [wrapper_at(address) for address in command.wrapper]
    return changes


def _usage() -> str:
    return (
        f"usage: rookery train {{{','.join(BUILT_IN)}}} ENV [OPTIONS], or rookery train --resume "
        "RUN_DIR [OPTIONS] (rookery train ppo --help lists the options)"
    )
