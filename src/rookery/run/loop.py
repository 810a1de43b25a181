"""The main entry points: train a policy, resume a run, evaluate a policy."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from inspect import signature
from pathlib import Path
from typing import Any

from rookery.common.arguments import known_names, whole_number
from rookery.errors import RookeryError
from rookery.run.checkpoint import state
from rookery.run.checkpoint.agents import agent_of
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.evaluation import MOST_EPISODE_STEPS, EvalResult, result_of, run_episodes
from rookery.run.interrupt import Terminated
from rookery.run.learners.open_learners import is_other_learner, learn_along
from rookery.run.plan import RunPlan
from rookery.run.request import (
    ARGUMENTS,
    OF_EVALUATIONS,
    RunRequest,
    shows_arguments,
)
from rookery.run.trainer import Trainer


@dataclass(frozen=True, slots=True)
class TrainResult:
    """Result of a training run.

    Attributes:
        run_dir: the run's folder.
        steps: env steps trained for.
        seconds: time to start the envs and train, without evaluation.
        steps_per_second: ``steps / seconds``.
        eval_return_mean: mean return of the final evaluation; None without one.
        eval_return_std: standard deviation of the returns of the final evaluation; None without
            one.
    """

    run_dir: str
    steps: int
    seconds: float
    steps_per_second: float
    eval_return_mean: float | None
    eval_return_std: float | None

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as a dict of plain data."""
        return asdict(self)


@shows_arguments(ARGUMENTS, with_settings=True)
def train(env: Any, algo: Any = "ppo", **arguments: Any) -> TrainResult:
    """Train a policy on parallel envs, evaluate it, and store the run in a folder.

    This is a loop over a `Trainer`.

    Args:
        env: see `RunRequest`.
        algo: see `RunRequest`.
        **arguments: further fields of `RunRequest`, and fields of `TrainSettings`.

    Returns:
        The run's folder, its speed, and the result of the final evaluation.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after a checkpoint was written and the envs were closed.
        SystemExit: on SIGTERM, after a checkpoint was written and the envs were closed. Its code
            is 143.
    """
    if is_other_learner():
        plan = RunPlan.new(RunRequest.of(env=env, algo=algo, **arguments))
        return TrainResult(**learn_along(plan))
    return _to_the_end(Trainer(env, algo, **arguments))


@shows_arguments(ARGUMENTS - {"initial"}, with_settings=False)
def resume(run_dir: str | Path, **arguments: Any) -> TrainResult:
    """Resume a run from its last checkpoint.

    The checkpoint restores weights, optimiser, schedules, statistics, random generators, counters
    and replay. Envs continue their episodes if their states could be saved. Other envs start new
    episodes, and a line on standard error gives the reason. Metrics logged after the checkpoint
    are dropped, because the resumed run writes them again.

    Resume only runs that you trust: the envs' states are pickles, and loading them executes code.

    Args:
        run_dir: folder that `train` wrote.
        **arguments: fields of `RunRequest` that replace those of the run, and settings to change,
            of the run or of its algorithm, such as ``total_steps`` or ``learning_rate``. Pass
            again what config.json cannot hold: a custom `Algorithm` object (``algo``), lambdas and
            local functions (``env``, ``wrappers``, ``encoder``, ``network``, ``learner``,
            ``eval_env``, ``eval_wrappers``), callbacks and sinks. If ``total_steps`` changes,
            schedules continue from their current values.

    Returns:
        The result of the whole run, as from `train`.

    Raises:
        ConfigError: the folder holds no run or no checkpoint, or a change is invalid.
    """
    if is_other_learner():
        folder = RunDirectory.existing(run_dir)
        plan, _ = state.read_run(folder, RunRequest.of(**arguments))
        return TrainResult(**learn_along(plan))
    return _to_the_end(Trainer.resume(run_dir, **arguments))


def _to_the_end(trainer: Trainer) -> TrainResult:
    """Train until the run ends, evaluate, and close the trainer."""
    try:
        with trainer:
            for _ in trainer:
                pass
            result = _result(trainer, _final_evaluation(trainer))
            trainer.learners.end(result.to_dict())
    except (KeyboardInterrupt, Terminated) as interrupt:
        raise type(interrupt)(f"after {trainer.steps} steps; {_way_on(trainer)}") from None
    return result


def _way_on(trainer: Trainer) -> str:
    """Return a hint on how to resume an interrupted run."""
    path = trainer.run_dir.path
    if not trainer.run_dir.checkpoint.is_file():
        return f"{path} has no checkpoint yet"
    return f"rookery train --resume {path} goes on from {trainer.run_dir.checkpoint}"


def _final_evaluation(trainer: Trainer) -> EvalResult | None:
    """Evaluate the policy; if that fails, print that the training itself is saved."""
    try:
        return trainer.final_evaluation()
    except RookeryError:
        if not trainer.is_saved:
            raise
        print(
            f"rookery: training finished after {trainer.steps} steps and is saved in "
            f"{trainer.run_dir.path}, but the final evaluation failed; run rookery eval "
            f"{trainer.run_dir.path} to repeat it",
            file=sys.stderr,
        )
        raise


def _result(trainer: Trainer, score: EvalResult | None) -> TrainResult:
    return TrainResult(
        run_dir=str(trainer.run_dir.path),
        steps=trainer.steps,
        seconds=trainer.seconds,
        steps_per_second=trainer.steps / trainer.seconds,
        eval_return_mean=None if score is None else score.eval_return_mean,
        eval_return_std=None if score is None else score.eval_return_std,
    )


@shows_arguments(OF_EVALUATIONS, with_settings=False)
def evaluate(
    run_dir: str | Path,
    episodes: int = 20,
    *,
    seed: int | None = None,
    num_envs: int | None = None,
    deterministic: bool = True,
    max_episode_steps: int = MOST_EPISODE_STEPS,
    **arguments: Any,
) -> EvalResult:
    """Evaluate the policy of a run.

    Args:
        run_dir: folder that `train` wrote, or a checkpoint in it, such as its ``best.pt``.
        episodes: number of complete episodes.
        seed: seed of envs and sampled actions; None takes the run's. With the same ``num_envs``
            and ``episodes``, that plays the same episodes as the run's own evaluations.
        num_envs: number of parallel envs; None takes the run's number, but at most ``episodes``.
        deterministic: take the most probable actions instead of sampling them.
        max_episode_steps: an episode is cut off after this many steps. It counts with its return
            so far, and a warning is printed.
        **arguments: fields of `RunRequest` that replace those of the run: ``env``, ``env_kwargs``,
            ``wrappers``, ``algo``, ``encoder``, ``network`` and ``learner``. Pass again what
            config.json cannot hold, such as a custom `Algorithm` object or a lambda.

    Returns:
        Mean and standard deviation of the returns, and the duration.

    Raises:
        ConfigError: the folder holds no run or no checkpoint.
        WorkerError: faults cut off so many episodes in a row that none could be counted.
    """
    whole_number("max_episode_steps", max_episode_steps, 1)
    whole_number("episodes", episodes, 1)
    if seed is not None:
        whole_number("seed", seed, 0)
    known_names(signature(evaluate).parameters, arguments, "arguments of rookery.evaluate")
    request, path = RunRequest.of(**arguments), Path(run_dir)
    folder = RunDirectory.existing(_folder_of(path) if path.is_file() else path)
    plan = RunPlan.of_run(folder, request, to_evaluate=True)
    settings = plan.settings
    file = path if path.is_file() else folder.checkpoint
    if num_envs is None:
        num_envs = min(settings.num_envs, episodes)
    saved = load_checkpoint(file)  # before an env can change the working directory
    here = replace(settings, cluster=None)  # the cluster may no longer exist
    with plan.eval_source.make(num_envs, **here.vector_options()) as venv:
        spaces = venv.single_observation_space, venv.single_action_space
        agent = agent_of(saved, plan.algorithm, spaces, file)
        seed = settings.seed if seed is None else seed
        key = next(iter(plan.eval_source.episode_keys()), None)
        score = run_episodes(
            venv, agent.policy, episodes, seed, deterministic, max_episode_steps, key
        )
    return result_of(score, folder)


def _folder_of(checkpoint: Path) -> Path:
    """Return the folder of the run to which a checkpoint file belongs."""
    parent = checkpoint.parent
    return parent.parent if parent.name == "checkpoints" else parent
