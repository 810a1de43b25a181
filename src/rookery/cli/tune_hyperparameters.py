"""``rookery tune --hyperparameters ALGORITHM ENV``."""

from __future__ import annotations

import json
import sys
from argparse import Namespace
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rookery.cli.arguments import (
    CommandParser,
    checked_output,
    count,
    parse_json,
    print_result,
    whole_number_in,
)
from rookery.cli.train import unknown_algorithm
from rookery.errors import ConfigError
from rookery.run.algorithms import BUILT_IN
from rookery.run.checkpoint.run_dir import as_file_name
from rookery.run.env_source import EnvSource
from rookery.run.log.terminal import Counter, print_table
from rookery.run.presets import AUTO, find_preset
from rookery.run.settings import TrainSettings
from rookery.tuning.hyperparameters.outcome import best_rows, preset_of, require_own, write_preset
from rookery.tuning.hyperparameters.search import HyperparameterSearch
from rookery.tuning.hyperparameters.space import SearchSpace, read_changes
from rookery.tuning.hyperparameters.study import (
    PRUNERS,
    SAMPLERS,
    Question,
    Study,
    open_study,
    question_in,
    require_optuna,
)

_COLUMNS = ("trial", "return", "±", "seconds", "settings")


def run(arguments: list[str]) -> int:
    """Search, print the best trials, and write the best settings."""
    parser = _parser()
    command = parser.parse_args(arguments)
    if command.algorithm not in BUILT_IN:
        choices = f"choose from {', '.join(BUILT_IN)}"
        raise unknown_algorithm(command.algorithm, command.env, parser.prog, choices)
    require_optuna()
    file = Path(command.study or f"{command.algorithm}-{as_file_name(command.env)}.db")
    output = checked_output(command.output or str(file.with_suffix(".json")), (".json",))
    require_own(output)
    asked = question_in(file)
    question = _question(command) if asked is None else _same(asked, command, file)
    with open_study(file, question, command.sampler, command.pruner) as study:
        if asked is None:
            study.enqueue(_plain(question))
        _print_progress_before(study, command, file)
        _search(study, command, file)
        best = study.completed()[0]
        print_table(_COLUMNS, best_rows(study), f"best trials of {len(study.made())}")
        preset = preset_of(study, command.sampler, command.pruner)
        write_preset(output, preset)
        (entry,) = preset.values()
        result = {
            "study": str(file),
            "preset": str(output),
            "trials": len(study.made()),
            "pruned": len(study.pruned()),
            "failed": len(study.failed()),
            "best_trial": best.number,
            "best_return": best.value,
            "reached": entry["reached"],
        }
    train = f"rookery train {question.algo} {question.env} --preset {output}"
    print(f"rookery: {train} trains with the best settings", file=sys.stderr)
    print_result(result)
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "rookery tune --hyperparameters",
        description="Search for hyperparameters that reach a high return. The study is stored in a "
        "file: the same command continues it.",
        epilog="The last line printed is one JSON object.",
    )
    plain = TrainSettings()
    parser.add_argument("algorithm", help=", ".join(BUILT_IN))
    parser.add_argument("env", help="gym id, 'package:Id' or 'package.module:function'")
    parser.add_argument(
        "--trials", type=count, default=30, help="number of trials of the whole study (30)"
    )
    parser.add_argument("--study", help="SQLite file of the study (ALGORITHM-ENV.db)")
    parser.add_argument("--output", help="JSON file for the best settings (STUDY with .json)")
    parser.add_argument(
        "--jobs", type=count, default=1, help="number of trials that run at the same time (1)"
    )
    parser.add_argument("--sampler", choices=SAMPLERS, default="tpe", help="Optuna sampler (tpe)")
    parser.add_argument(
        "--pruner", choices=PRUNERS, default="median", help="Optuna pruner (median)"
    )
    parser.add_argument(
        "--confirm", type=whole_number_in, default=3, metavar="N",
        help="number of further runs of the best settings, with new seeds (3)",
    )  # fmt: skip
    parser.add_argument("--runs-dir", help="folder in which the runs of all trials are kept")
    study = parser.add_argument_group("settings of a new study, which cannot change later")
    study.add_argument(
        "--total-steps", type=count,
        help=f"env steps of each trial (from the preset, else {plain.total_steps})",
    )  # fmt: skip
    study.add_argument("--evaluations", type=count, help="number of evaluations of each trial (5)")
    study.add_argument(
        "--eval-episodes", type=count, help="number of episodes of each evaluation (10)"
    )
    study.add_argument("--seed", type=whole_number_in, help="root of the seeds of all trials (0)")
    study.add_argument(
        "--space", metavar="FILE", help="JSON file with other ranges, choices or values"
    )
    study.add_argument(
        "--preset",
        help="source of the settings that are not searched: auto, none, an env id, or a JSON file "
        "(auto)",
    )
    study.add_argument("--env-kwargs", help="arguments of the env, as JSON")
    study.add_argument("--wrapper", action="append", help="wrapper of every env, as module:Class")
    study.add_argument("--env-module", help="module to import first; it registers the env")
    return parser


def _question(command: Namespace) -> Question:
    """Return the question of a new study.

    Raises:
        UsageError: the env, a setting or a file is invalid.
    """
    algo, preset = command.algorithm, command.preset or AUTO
    changes = {} if command.space is None else read_changes(command.space)
    env_kwargs = parse_json(command.env_kwargs or "{}", "--env-kwargs")
    source = EnvSource(command.env, env_kwargs, (), command.env_module, preprocess=True)
    source.arguments()  # raises if the env is invalid
    base, total_steps = _base(algo, command.env, preset, command.env_module)
    space = SearchSpace.of(algo, changes)
    return Question(
        algo=algo,
        env=command.env,
        env_kwargs=env_kwargs,
        wrappers=tuple(command.wrapper or ()),
        env_module=command.env_module,
        base=base,
        space=space.to_dict(),
        total_steps=command.total_steps or total_steps,
        evaluations=command.evaluations or 5,
        eval_episodes=command.eval_episodes or 10,
        seed=command.seed or 0,
    )


def _base(algo: str, env: str, preset: str, env_module: str | None) -> tuple[dict[str, Any], int]:
    """Return the settings that are not searched, and the default steps of a trial."""
    found = find_preset(algo, env, preset, env_module)
    base: dict[str, Any] = {} if found is None else {**found.run, **found.settings}
    return base, base.pop("total_steps", TrainSettings().total_steps)


def _same(asked: Question, command: Namespace, file: Path) -> Question:
    """Return the question of an existing study, after comparing it with the command.

    Raises:
        ConfigError: the command has another env, algorithm or setting than the study.
    """
    given = {
        "algorithm": (command.algorithm, asked.algo),
        "env": (command.env, asked.env),
        "--total-steps": (command.total_steps, asked.total_steps),
        "--evaluations": (command.evaluations, asked.evaluations),
        "--eval-episodes": (command.eval_episodes, asked.eval_episodes),
        "--seed": (command.seed, asked.seed),
        "--env-module": (command.env_module, asked.env_module),
        "--wrapper": (command.wrapper, list(asked.wrappers)),
    }
    if command.env_kwargs is not None:
        kwargs = parse_json(command.env_kwargs, "--env-kwargs")
        given["--env-kwargs"] = (kwargs, dict(asked.env_kwargs))
    if command.space is not None:
        space = SearchSpace.of(asked.algo, read_changes(command.space))
        given["--space"] = (_as_json(space.to_dict()), dict(asked.space))
    if command.preset is not None and command.env == asked.env:
        base, _ = _base(asked.algo, asked.env, command.preset, asked.env_module)
        given["--preset"] = (_as_json(base), dict(asked.base))
    for name, (now, before) in given.items():
        if now is not None and now != before:
            raise ConfigError(
                f"--study {file} was started with {name} {before}, but {name} is now {now}; leave "
                "it out to continue, or start another study with --study FILE"
            )
    return asked


def _as_json(value: Any) -> Any:
    """Return a value as it looks after a round trip through JSON."""
    return json.loads(json.dumps(value))


def _plain(question: Question) -> dict[str, Any]:
    """Return the settings of a run without a search: the preset, else the defaults."""
    config = BUILT_IN[question.algo][0]()
    return {**asdict(TrainSettings()), **config.to_dict(), **question.base}


def _print_progress_before(study: Study, command: Namespace, file: Path) -> None:
    restored, question = study.interrupt_all(), study.question
    made = len(study.made())
    what = f"{question.algo} on {question.env}, {question.total_steps} steps a trial"
    before = f", {made} made before" if made else ""
    again = f", {restored} of them interrupted and repeated" if restored else ""
    text = f"{what}; study {file}: {command.trials} trials{before}{again}"
    print(f"rookery: {text}", file=sys.stderr, flush=True)


def _search(study: Study, command: Namespace, file: Path) -> None:
    """Run the missing trials.

    Raises:
        KeyboardInterrupt: after Ctrl-C; the message says how to continue.
    """
    total = max(command.trials - len(study.made()), 0)
    with Counter(total + command.confirm, "trials") as counter:
        search = HyperparameterSearch(
            study,
            trials=command.trials,
            jobs=command.jobs,
            confirmations=command.confirm,
            runs_dir=None if command.runs_dir is None else Path(command.runs_dir),
            tell=counter.done,
            show=counter.doing,
        )
        try:
            search.run()
        except KeyboardInterrupt:
            raise KeyboardInterrupt(
                f"after {len(study.made())} of {command.trials} trials, which are saved in {file}; "
                "the same command continues"
            ) from None
