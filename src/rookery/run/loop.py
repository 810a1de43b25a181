"""The main entry points: train a policy, resume a run, evaluate a policy."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from rookery.common.arguments import whole_number
from rookery.errors import RookeryError
from rookery.run.agent import Agent
from rookery.run.callbacks import Callback
from rookery.run.checkpoint import state
from rookery.run.checkpoint.agents import agent_of, with_saved_layers
from rookery.run.checkpoint.files import load_checkpoint
from rookery.run.checkpoint.run_dir import RunDirectory
from rookery.run.evaluation import MOST_EPISODE_STEPS, result_of, run_episodes
from rookery.run.interrupt import Terminated
from rookery.run.learners.open_learners import is_other_learner, learn_along
from rookery.run.log.sinks import Sink
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
    """Train a policy on parallel envs, evaluate it, and store the run in a folder.

    This is a loop over a `Trainer`, which takes the same arguments.

    Returns:
        The run's folder, its speed, and the result of the final evaluation.

    Raises:
        KeyboardInterrupt: on Ctrl-C, after a checkpoint was written and the envs were closed.
        SystemExit: on SIGTERM, after a checkpoint was written and the envs were closed. Its code
            is 143.
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
    """Resume a run from its last checkpoint.

    The checkpoint restores weights, optimiser, schedules, statistics, random generators, counters
    and replay. Envs continue their episodes if their states could be saved. Other envs start new
    episodes, and a line on standard error gives the reason. Metrics logged after the checkpoint
    are dropped, because the resumed run writes them again.

    Resume only runs that you trust: the envs' states are pickles, and loading them executes code.

    Args:
        run_dir: folder that `train` wrote.
        algo: the algorithm. Required if the run was trained with a custom `Algorithm` object.
        encoder: the custom encoder. Required if it cannot be imported by name.
        network: the custom network. Required if it cannot be imported by name.
        learner: subclass of the algorithm's learner. Required if it cannot be imported by name.
        env: env to train on; None takes the run's env. Required if that was a lambda.
        env_kwargs: keyword arguments of every env; None takes the run's.
        wrappers: wrappers of every env; None takes the run's. Required if one was a lambda.
        callbacks: called after each update, as in `train`. The run does not store its callbacks.
        sinks: further destinations of metrics, as in `train`. The run does not store its sinks.
        eval_env: env of evaluations and videos; None takes the run's. Required if that was a
            lambda.
        eval_wrappers: wrappers of evaluation envs; None takes the run's. Required if one was a
            lambda.
        progress: show progress on standard error.
        **changes: settings to change, of the run or of its algorithm, by name, such as
            ``total_steps`` or ``learning_rate``. If ``total_steps`` changes, schedules continue
            from their current values.

    Returns:
        The result of the whole run, as from `train`.

    Raises:
        ConfigError: the folder holds no run or no checkpoint, or a change is invalid.
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
    """Evaluate the policy of a run.

    Args:
        run_dir: folder that `train` wrote, or a checkpoint in it, such as its ``best.pt``.
        episodes: number of complete episodes.
        seed: seed of envs and sampled actions; None takes the run's. With the same ``num_envs``
            and ``episodes``, that plays the same episodes as the run's own evaluations.
        num_envs: number of parallel envs; None takes the run's number, but at most ``episodes``.
        deterministic: take the most probable actions instead of sampling them.
        algo: the algorithm. Required if the run was trained with a custom `Algorithm` object.
        encoder: the custom encoder. Required if it cannot be imported by name.
        network: the custom network. Required if it cannot be imported by name.
        learner: subclass of the algorithm's learner. Required if it cannot be imported by name.
        env: env to evaluate on; None takes the run's env. Required if that was a lambda.
        env_kwargs: keyword arguments of every env; None takes the run's.
        wrappers: wrappers of every env; None takes the run's. Required if one was a lambda.
        max_episode_steps: an episode is cut off after this many steps. It counts with its return
            so far, and a warning is printed.

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


def _add_settings_to_signature(function: Any) -> None:
    """Add the settings to the signature that ``help(function)`` and editors show."""
    signature = inspect.signature(function)
    named = [p for p in signature.parameters.values() if p.kind is not p.VAR_KEYWORD]
    settings = [
        inspect.Parameter(
            f.name, inspect.Parameter.KEYWORD_ONLY, default=f.default, annotation=f.type
        )
        for f in fields(TrainSettings)
    ]
    function.__signature__ = signature.replace(parameters=[*named, *settings])


_add_settings_to_signature(train)
