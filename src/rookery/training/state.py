"""The state of a run on the disk: checkpoint.pt, and its companions that only resuming reads.

checkpoint.pt names its companions, so it decides alone which state is valid: they are written
before it, under fresh names, and the old ones are deleted after it.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rookery.env.seeding import env_seeds
from rookery.errors import EnvFailed
from rookery.training.checkpoint import load_checkpoint, save_checkpoint, whole_file

if TYPE_CHECKING:
    from rookery.training.run import Run
    from rookery.training.run_dir import RunDirectory


def save(run: Run) -> None:
    """Write where ``run`` stands."""
    run.saves += 1
    collector = run.collector.state_dict()
    env_states, unsaved = _save_env_states(run, collector is not None)
    companions = {"replay": _save_replay(run), "env_states": env_states}
    state = {
        "steps": run.steps,
        "seconds": run.seconds,
        "policy_version": run.policy.version,
        "model": run.policy.model.state_dict(),
        "learner": run.learner.state_dict(),
        "rng": run.policy.rng.bit_generator.state,
        "history": run.history.state_dict(),
        "collector": collector,
        "saves": run.saves,
        "companions": companions,
        "unsaved": unsaved,
    }
    save_checkpoint(run.run_dir.checkpoint, state)
    for file in run.run_dir.companions.iterdir():
        if file.name not in companions.values():
            file.unlink()


def restore(run: Run) -> list[str]:
    """Put ``run`` where its folder says it stood.

    Returns:
        Sentences about what could not be taken over.
    """
    state = load_checkpoint(run.run_dir.checkpoint)
    run.steps, run.seconds, run.saves = state["steps"], state["seconds"], state["saves"]
    run.policy.version = state["policy_version"]
    run.policy.model.load_state_dict(state["model"])
    run.policy.rng.bit_generator.state = state["rng"]
    run.learner.load_state_dict(state["learner"])
    run.history.load_state_dict(state["history"])
    notes = _restore_replay(run, state["companions"]["replay"])
    return notes + _restore_envs(run, state)


def policy_seed(run_dir: RunDirectory, seed: int) -> int:
    """Derive the seed of a resumed run's policy, whose copies in workers begin new streams.

    The weights that it leads to, and the generator in this process, are replaced by the saved ones.
    """
    saves = load_checkpoint(run_dir.checkpoint)["saves"]
    return int(np.random.SeedSequence([seed, 3, saves]).generate_state(1)[0])


def _save_replay(run: Run) -> str | None:
    state = run.learner.replay_state()
    if state is None:
        return None
    path = run.run_dir.companions / f"replay-{run.saves}.pt"
    save_checkpoint(path, state)
    return path.name


def _restore_replay(run: Run, name: str | None) -> list[str]:
    path = _companion(run, name)
    if path is not None:
        run.learner.load_replay_state(load_checkpoint(path))
        return []
    return ["the replay was not saved and starts empty"] if run.learner.keeps_replay else []


def _save_env_states(run: Run, between_steps: bool) -> tuple[str | None, str]:
    """Write the envs' states; return the file's name, or None and why there is none."""
    if not run.settings.save_env_states:
        return None, "the envs' states were not to be saved"
    states, reason = run.stage.capture_envs(between_steps)
    if states is None:
        return None, reason
    path = run.run_dir.companions / f"env_states-{run.saves}.pkl"
    with whole_file(path) as file:
        pickle.dump(states, file)
    return path.name, ""


def _restore_envs(run: Run, state: dict[str, Any]) -> list[str]:
    """Go on amid the episodes, or begin new ones with seeds that the run has not used."""
    word = int(np.random.SeedSequence([run.settings.seed, 2, run.saves]).generate_state(1)[0])
    seeds = env_seeds(word, run.settings.num_envs)
    run.collector.reset(seeds)
    path = _companion(run, state["companions"]["env_states"])
    reason = state["unsaved"] or "the file of the envs' states is gone"
    if path is not None:
        try:
            run.stage.restore_envs(pickle.loads(path.read_bytes()))
            run.collector.load_state_dict(state["collector"])
            return []
        except EnvFailed as error:
            reason = f"the envs do not take their states back ({error})"
            run.collector.reset(seeds)
    run.history.abandon_episodes()
    run.learner.abandon_episodes()
    return [f"{reason}; they start new episodes"]


def _companion(run: Run, name: str | None) -> Path | None:
    """Find a companion; None where there was none, or where somebody deleted it."""
    path = run.run_dir.companions / name if name is not None else None
    return path if path is not None and path.is_file() else None
