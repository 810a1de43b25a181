"""The calls that most users make: train, go on, evaluate."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rookery.common.arguments import whole_number
from rookery.errors import RookeryError
from rookery.run.agent import Agent, agent_of, with_saved_layers
from rookery.run.callbacks import Callback
from rookery.run.checkpoint import state
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.evaluation import MOST_EPISODE_STEPS, result_of, run_episodes
from rookery.run.interrupt import Terminated
from rookery.run.learners.open_learners import is_other_learner, learn_along
from rookery.run.log.sink import Sink
from rookery.run.plan import RunPlan
from rookery.run.results import EvalResult, TrainResult
from rookery.run.settings import TrainSettings
from rookery.run.trainer import Trainer


def train(
    env: Any,
    algo: Any = "ppo",
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] = (),
    callbacks: Sequence[Callback] = (),
    sinks: Sequence[Sink] = (),
    encoder: Any = None,
    network: Any = None,
    learner: Any = None,
    initial: Agent | None = None,
    eval_env: Any = None,
    eval_wrappers: Sequence[Callable[[Any], Any]] | None = None,
    progress: bool = False,
    **settings: Any,
) -> TrainResult:
    """Train a policy on parallel envs, evaluate it, and leave the run in a folder.

    It is a loop over a `Trainer`, which takes the same arguments.

    Returns:
        Where the run is, how fast it was, and the final evaluation.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after a checkpoint was written and the envs were closed.
        SystemExit: on SIGTERM, likewise; its code is 143.
    """
    if is_other_learner():
        own = {"encoder": encoder, "network": network, "learner": learner}
        parts = {**own, "eval_env": eval_env}
        plan = RunPlan.new(
            env, algo, settings, env_kwargs=env_kwargs, wrappers=wrappers,
            eval_wrappers=eval_wrappers, **parts,
        )  # fmt: skip
        return TrainResult(**learn_along(plan))
    return _to_the_end(
        Trainer(
            env,
            algo,
            env_kwargs=env_kwargs,
            wrappers=wrappers,
            callbacks=callbacks,
            sinks=sinks,
            encoder=encoder,
            network=network,
            learner=learner,
            initial=initial,
            eval_env=eval_env,
            eval_wrappers=eval_wrappers,
            progress=progress,
            **settings,
        )
    )


def resume(
    run_dir: str | Path,
    *,
    algo: Any = None,
    encoder: Any = None,
    network: Any = None,
    learner: Any = None,
    env: Any = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    callbacks: Sequence[Callback] = (),
    sinks: Sequence[Sink] = (),
    eval_env: Any = None,
    eval_wrappers: Sequence[Callable[[Any], Any]] | None = None,
    progress: bool = False,
    **changes: Any,
) -> TrainResult:
    """Go on with a run from its last checkpoint, as if it had never stopped.

    Weights, optimiser, schedules, statistics, generators, counters and replay are taken over, and
    so are the envs amid their episodes, where their states can be saved. Where they cannot, they
    start new episodes, and a line on standard error says why. Metrics after the checkpoint are
    dropped, because they come again.

    Resume runs that you trust: the envs' states are pickles, and loading them executes code.

    Args:
        run_dir: folder that `train` wrote.
        algo: needed where the run was trained with an algorithm object of one's own.
        encoder: needed where it was one's own and cannot be imported by its name.
        network: likewise.
        learner: needed if the run had a custom learner that cannot be imported by its name.
        env: what to train on; None takes the run's env. Needed where that was a lambda.
        env_kwargs: likewise.
        wrappers: likewise.
        callbacks: as for `train`; they are not written down.
        sinks: likewise.
        eval_env: as for `train`; None takes the run's. Needed where that was a lambda.
        eval_wrappers: likewise.
        progress: show progress on standard error.
        **changes: settings to change, of the run or of its algorithm, by name, such as
            ``total_steps`` or ``learning_rate``. Schedules of a run with a new end go on from where
            they were.

    Returns:
        What `train` returns, for the whole run.

    Raises:
        ConfigError: there is no run in the folder, or no checkpoint of it, or a change cannot be.
    """
    if is_other_learner():
        own = {"encoder": encoder, "network": network, "learner": learner}
        parts = {**own, "eval_env": eval_env}
        folder = RunDirectory.existing(run_dir)
        plan = RunPlan.of_run(
            folder, algo=algo, env=env, env_kwargs=env_kwargs,
            wrappers=wrappers, eval_wrappers=eval_wrappers, changes=changes, **parts,
        )  # fmt: skip
        algorithm = with_saved_layers(plan.algorithm, state.read(folder))
        return TrainResult(**learn_along(replace(plan, algorithm=algorithm)))
    return _to_the_end(
        Trainer.resume(
            run_dir,
            algo=algo,
            encoder=encoder,
            network=network,
            learner=learner,
            env=env,
            env_kwargs=env_kwargs,
            wrappers=wrappers,
            callbacks=callbacks,
            sinks=sinks,
            eval_env=eval_env,
            eval_wrappers=eval_wrappers,
            progress=progress,
            **changes,
        )
    )


def _to_the_end(trainer: Trainer) -> TrainResult:
    """Train until the run is over, evaluate, and close."""
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
    """What can be done with a run that was interrupted."""
    path = trainer.run_dir.path
    if not trainer.run_dir.checkpoint.is_file():
        return f"{path} has no checkpoint yet"
    return f"rookery train --resume {path} goes on from {trainer.run_dir.checkpoint}"


def _final_evaluation(trainer: Trainer) -> EvalResult | None:
    """Evaluate what was learned; if that fails, say that the rest did not."""
    try:
        return trainer.final_evaluation()
    except RookeryError:
        if not trainer.is_saved:
            raise
        print(
            f"rookery: all {trainer.steps} steps are made, and what was learned is saved in "
            f"{trainer.run_dir.path}; the evaluation at the end failed (rookery eval "
            f"{trainer.run_dir.path} makes another one)",
            file=sys.stderr,
        )
        raise


def _result(trainer: Trainer, score: EvalResult | None) -> TrainResult:
    """What a run has come to."""
    return TrainResult(
        run_dir=str(trainer.run_dir.path),
        steps=trainer.steps,
        seconds=trainer.seconds,
        steps_per_second=trainer.steps / trainer.seconds,
        eval_return_mean=None if score is None else score.eval_return_mean,
        eval_return_std=None if score is None else score.eval_return_std,
    )


def evaluate(
    run_dir: str | Path,
    episodes: int = 20,
    *,
    seed: int | None = None,
    num_envs: int | None = None,
    deterministic: bool = True,
    algo: Any = None,
    encoder: Any = None,
    network: Any = None,
    learner: Any = None,
    env: Any = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Callable[[Any], Any]] | None = None,
    max_episode_steps: int = MOST_EPISODE_STEPS,
) -> EvalResult:
    """Evaluate what a run has learned.

    Args:
        run_dir: folder that `train` wrote, or a checkpoint in it, such as its ``best.pt``.
        episodes: how many whole episodes.
        seed: of envs and drawn actions; None takes the run's, which gives the episodes of its
            own evaluations where ``num_envs`` and ``episodes`` are the same.
        num_envs: how many envs run in parallel; None takes the run's number, but no more than
            there are episodes.
        deterministic: take the most probable actions instead of drawing them.
        algo: needed where the run was trained with an algorithm object of one's own.
        encoder: needed where it was one's own and cannot be imported by its name.
        network: likewise.
        learner: needed if the run had a custom learner that cannot be imported by its name.
        env: what to evaluate on; None takes the run's env. Needed where that was a lambda.
        env_kwargs: likewise.
        wrappers: likewise.
        max_episode_steps: an episode that has not ended after so many steps is cut there; it counts
            with its return so far, and a warning says so.

    Returns:
        Mean and deviation of the returns, and how long it took.

    Raises:
        ConfigError: there is no run, or no checkpoint of it.
        WorkerError: when faults cut off one episode after the other, so that none could be counted.
    """
    whole_number("max_episode_steps", max_episode_steps, 1)
    whole_number("episodes", episodes, 1)
    if seed is not None:
        whole_number("seed", seed, 0)
    path = Path(run_dir)
    folder = RunDirectory.existing(_folder_of(path) if path.is_file() else path)
    plan = RunPlan.of_run(
        folder,
        algo=algo,
        encoder=encoder,
        network=network,
        learner=learner,
        env=env,
        env_kwargs=env_kwargs,
        wrappers=wrappers,
        to_evaluate=True,
    )
    settings = plan.settings
    file = path if path.is_file() else folder.checkpoint
    if num_envs is None:
        num_envs = min(settings.num_envs, episodes)
    saved = load_checkpoint(file)  # before an env can go to another folder
    here = replace(settings, cluster=None)  # which may have gone since
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
    """The folder of the run that a checkpoint lies in."""
    parent = checkpoint.parent
    return parent.parent if parent.name == "checkpoints" else parent


def _tell_settings(function: Any) -> None:
    """Have ``help(function)`` and editors name the settings, which are written down once."""
    signature = inspect.signature(function)
    own = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    settings = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type
        )
        for f in fields(TrainSettings)
    ]
    function.__signature__ = signature.replace(parameters=[*own, *settings])


_tell_settings(train)
