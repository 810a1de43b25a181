"""tune: find the fastest number of envs and their placement, by measuring the real policy."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from statistics import median
from typing import Any

from rookery.common.arguments import check_positive, whole_number
from rookery.common.cpus import cpus_in_use, usable_cpus
from rookery.common.resources import memory_room
from rookery.errors import ConfigError, RookeryError
from rookery.learn.config import ReplayConfig
from rookery.run.algorithms import BuiltIn, OwnModules, config_of, name_of
from rookery.run.collection import PARTLY, collectors_of, keeps_something_of_each_env
from rookery.run.plan import RunPlan, versions
from rookery.run.presets.tuned import Tuned, describe_machine
from rookery.run.request import ARGUMENTS, OF_EVALUATIONS, RunRequest, shows_arguments
from rookery.tuning.candidates import Candidate, Possible, candidates, env_counts, outwards
from rookery.tuning.halving import CandidateFailed, Halving
from rookery.tuning.measurer import Measurer
from rookery.tuning.measuring_process import Subject
from rookery.tuning.memory import Ceiling, MemoryModel, ceiling_of, in_units, model_of
from rookery.tuning.outcome import Outcome, trial_to_dict
from rookery.tuning.trials import Limits, Slice, Trial, best_of_each, knee, limits_of

# Arguments of a run that have no meaning in a search, or that would end it early.
OF_RUNS = (
    "run_dir", "overwrite", "tuned", "total_steps", "eval_episodes", "eval_every", "stop_at",
    "checkpoint_interval_s", "checkpoint_every", "keep_checkpoints", "save_env_states",
    "video_every", *sorted(ARGUMENTS - OF_EVALUATIONS),
)  # fmt: skip
SEARCHED = ("num_envs", "collector", "backend", "num_workers", "caller_steps")
_LEAST_DEADLINE_S, _DEADLINE_SHARE = 30.0, 1 / 4  # share of the time, for each stage of a candidate
_MINUTES, _MOST_MINUTES = 2.0, 10.0  # default duration of a search
_BUSY = 0.5  # share of the CPUs used by other programs
_LOOK_SHARE = 4  # the memory measurement may use one part in this many


class TuningInterrupted(KeyboardInterrupt):
    """An interruption of a search before anything was measured."""


class TuningFailed(RookeryError):
    """A search in which every candidate failed."""


@shows_arguments(OF_EVALUATIONS, with_settings=True)
def tune(
    env: Any,
    algo: Any = "ppo",
    *,
    minutes: float | None = None,
    memory: int | None = None,
    max_envs: int | None = None,
    whole_loop: bool = False,
    say: Callable[[str], None] = lambda line: None,
    **arguments: Any,
) -> Outcome:
    """Find the fastest parallel settings for a run on this machine.

    Candidates are measured in a separate process, with the algorithm's policy and collector.
    Settings that you pass stay fixed: with ``num_envs=16``, only the placement of these 16 envs is
    searched.

    Args:
        env: env of the run, as for `rookery.train`.
        algo: algorithm of the run, as for `rookery.train`.
        minutes: approximate duration of the search; None takes 2, or up to 10 if envs start so
            slowly that 2 minutes do not suffice to try each candidate once.
        memory: largest amount of memory for a run, in bytes; None takes the available memory.
        max_envs: largest number of envs to try; None takes 64 for each CPU.
        whole_loop: compare env steps per second of collecting and learning together, instead of
            collecting alone.
        say: function that receives progress messages, line by line.
        **arguments: ``env_kwargs``, ``wrappers``, ``encoder``, ``network`` and ``learner`` of
            `RunRequest`, and settings of the run. ``scale_hyperparameters`` applies to the
            measured runs and is part of the result.

    Returns:
        The outcome. After Ctrl-C, it has the results so far and is marked as interrupted.

    Raises:
        ConfigError: a setting is invalid.
        TuningFailed: every candidate failed.
        TuningInterrupted: Ctrl-C was pressed before anything was measured.
    """
    if minutes is not None:
        check_positive("minutes", minutes)
    if max_envs is not None:
        whole_number("max_envs", max_envs, 1)
    unused = [name for name in arguments if name in OF_RUNS]
    if unused:
        raise ConfigError(
            f"{unused[0]} is a setting of rookery train, not of rookery tune; leave it out"
        )
    request = RunRequest.of(env=env, algo=algo, **arguments)
    search = Search(request, whole_loop, ceiling_of(memory_room(), memory), say)
    least, most = (_MINUTES, _MOST_MINUTES) if minutes is None else (minutes, minutes)
    return search.run(60 * least, 60 * most, max_envs)


class Search:
    """One search; see `tune`."""

    def __init__(
        self,
        request: RunRequest,
        whole_loop: bool,
        ceiling: Ceiling,
        say: Callable[[str], None],
    ) -> None:
        self._request = request
        self._whole_loop, self._ceiling, self._say = whole_loop, ceiling, say
        self._plans: dict[int, RunPlan] = {}
        self.plan = self._planned(scale_hyperparameters=False)
        self.plan.source.arguments()  # raises if the env is invalid
        self._memory: MemoryModel | None = None
        self._too_large: set[int] = set()  # numbers of envs that do not fit in memory
        self._seen: dict[Candidate, Slice] = {}

    def run(self, seconds: float, most_seconds: float, max_envs: int | None) -> Outcome:
        """Search for ``seconds``, or up to ``most_seconds`` if the first round needs them."""
        began = time.monotonic()
        plan = self.plan
        algorithm = plan.algorithm
        is_own = not isinstance(algorithm, BuiltIn)
        subject = Subject(
            plan.source,
            algorithm if is_own else None,
            name_of(algorithm),
            algorithm.modules if isinstance(algorithm, BuiltIn) else OwnModules(),
            plan.settings,
        )
        deadline_s = max(_DEADLINE_SHARE * seconds, _LEAST_DEADLINE_S)
        interrupted, halving = False, None
        with ExitStack() as stack:
            self._measurer = stack.enter_context(Measurer(subject, self._ceiling, deadline_s))
            try:
                self._tell_if_busy()
                waits = self._look()
                tried = self._candidates(waits, max_envs)
                self._say(
                    f"{len(tried)} candidates, with {_listed({c.num_envs for c in tried})} envs, "
                    f"memory ceiling {self._ceiling}"
                )
                spent = time.monotonic() - began
                halving = Halving(
                    tried, self._measure, max(seconds - spent, seconds / 2), time.monotonic,
                    self._whole_loop, self._say, most_seconds - spent,
                )  # fmt: skip
                halving.run()
            except KeyboardInterrupt:
                interrupted = True
                self._say("interrupted: using the results so far")
        if halving is not None and interrupted:
            halving.leave_out("the search was interrupted")
        trials = [] if halving is None else halving.trials
        return self._outcome(trials, interrupted)

    # ---------------------------------------------------------------- preparation

    def _tell_if_busy(self) -> None:
        """Warn if other programs use much of the machine."""
        used, cpus = cpus_in_use(), usable_cpus()
        if used > _BUSY * cpus:
            self._say(
                f"this machine is busy (other programs use {used:.1f} of {cpus} CPUs): the figures "
                "are lower than on an idle machine, and may vary"
            )

    def _look(self) -> bool:
        """Measure one env, and the memory of several; return whether envs mostly wait."""
        try:
            step = self._measurer.ask({"do": "step"})
        except CandidateFailed as failure:
            self._say(f"measuring a single env failed: {failure}")
            return False
        self._say(
            f"a step of one env takes {1e6 * step['env_s']:,.0f} us"
            f"{', mostly of waiting' * bool(step['waits'])}"
        )
        self._look_at_memory()
        return bool(step["waits"])

    def _look_at_memory(self) -> None:
        order = {"do": "memory", "most_bytes": self._ceiling.size_bytes // _LOOK_SHARE}
        try:
            found = self._measurer.ask(order)
        except CandidateFailed as failure:
            self._say(f"measuring the memory of envs failed: {failure}")
            return
        config = config_of(self.plan.algorithm)
        replay = config.replay_size if isinstance(config, ReplayConfig) else 0
        self._memory = model_of(
            found["one_bytes"], found["some_bytes"], found["some"], found["caller_bytes"],
            row_bytes=found["row_bytes"], num_steps=self.plan.algorithm.num_steps,
            replay_bytes=replay * (found["row_bytes"] + 32),
        )  # fmt: skip
        self._say(
            f"an env takes {in_units(self._memory.env_bytes)}, a worker "
            f"{in_units(self._memory.worker_bytes)}, the calling process "
            f"{in_units(found['caller_bytes'])}"
        )

    def _candidates(self, waits: bool, max_envs: int | None) -> list[Candidate]:
        settings, source = self.plan.settings, self.plan.source
        fixed = {
            name: self._request.settings[name]
            for name in SEARCHED
            if name in self._request.settings
        }
        faults = settings.faults()
        needs_workers = bool(faults.restarts or faults.has_deadline or faults.max_worker_rss_mb)
        collectors = collectors_of(self.plan.algorithm)
        if keeps_something_of_each_env(self.plan.algorithm):
            collectors = tuple(c for c in collectors if c not in PARTLY)
        possible = Possible(
            usable_cpus(),
            collectors,
            waits,
            _has_batch(source) and not needs_workers,
            not (needs_workers or settings.isolate),
            settings.isolate,
        )
        if "num_envs" in fixed:
            counts = [settings.num_envs]
        else:
            counts = env_counts(settings.num_envs, possible.cpus, max_envs)
            counts = outwards(counts, settings.num_envs)
        return candidates(counts, possible, fixed)

    def _plan_of(self, num_envs: int) -> RunPlan:
        """Return the plan of a run with a number of envs, with scaled hyperparameters if any."""
        if num_envs not in self._plans:
            self._plans[num_envs] = self._planned(num_envs=num_envs)
        return self._plans[num_envs]

    def _planned(self, **changes: Any) -> RunPlan:
        settings = {**self._request.settings, **changes}
        return RunPlan.new(replace(self._request, settings=settings))

    # ---------------------------------------------------------------- a candidate

    def _measure(self, candidate: Candidate, seconds: float) -> Slice:
        needed = self._needed(candidate)
        if needed > self._ceiling.size_bytes:
            self._too_large.add(candidate.num_envs)
            raise CandidateFailed(
                f"needs about {in_units(needed)}, and the memory ceiling is {self._ceiling}", False
            )
        try:
            config = config_of(self._plan_of(candidate.num_envs).algorithm)
            if config is not None:
                config.check(candidate.num_envs)
        except ConfigError as error:  # such as a minibatch that is larger than the rollout
            raise CandidateFailed(str(error), False) from error
        order = {
            "do": "measure",
            "settings": candidate.settings(),
            "config": None if config is None else config.to_dict(),
            "seconds": seconds,
            "learns": self._whole_loop,
            "step_s": self._step_of_all(candidate),
        }
        answer = self._measurer.ask(order, seconds)
        found = Slice(
            answer["steps"], answer["collect_s"], answer["learn_s"], tuple(answer["windows"]),
            answer["opened_s"], answer["memory_bytes"], answer["grown_bytes"],
        )  # fmt: skip
        if found.memory_bytes > self._ceiling.size_bytes:
            self._too_large.add(candidate.num_envs)
            raise CandidateFailed(
                f"took {in_units(found.memory_bytes)}, and the memory ceiling is {self._ceiling}"
                f"{found.growth and '; ' + found.growth}"
            )
        self._seen[candidate] = found
        return found

    def _step_of_all(self, candidate: Candidate) -> float:
        """Estimate the time of a step of all envs from other candidates; 0 before the first.

        The step time of a single env is a poor estimate: it lacks the policy and other overhead.
        """
        own = self._seen.get(candidate)
        if own is not None:
            return candidate.num_envs / own.rate
        if not self._seen:
            return 0.0
        return candidate.num_envs * median(1 / seen.rate for seen in self._seen.values())

    def _needed(self, candidate: Candidate) -> int:
        """Estimate the bytes of a candidate, from the same mode with fewer envs if measured."""
        if self._memory is None:
            return 0
        alike = [c for c in self._seen if c.mode == candidate.mode]
        model = self._memory.needed(candidate.num_envs, candidate.mode.num_workers or 0)
        if not alike:
            return model
        nearest = max(alike, key=lambda c: c.num_envs)
        more = candidate.num_envs - nearest.num_envs
        seen = self._seen[nearest].memory_bytes + self._memory.replay_bytes
        return seen + more * self._memory.each_bytes

    # ---------------------------------------------------------------- result

    def _outcome(self, trials: list[Trial], interrupted: bool) -> Outcome:
        best = best_of_each(trials, self._whole_loop)
        chosen = knee(best, self._whole_loop)
        if chosen is None:
            if interrupted:
                raise TuningInterrupted("before anything was measured")
            reasons = dict.fromkeys(t.failure for t in trials if not t.is_skipped)
            raise TuningFailed(f"no candidate could be run: {'; '.join(list(reasons)[:3])}")
        limits = limits_of(
            best, chosen, usable_cpus(), self._ceiling, self._memory, self._whole_loop,
            any(count > best[-1].candidate.num_envs for count in self._too_large),
            "num_envs" in self._request.settings,
        )  # fmt: skip
        settings = chosen.candidate.settings()
        moved: list[str] = []
        if self._request.settings.get("scale_hyperparameters"):
            settings["scale_hyperparameters"] = True
            moved = list(self._plan_of(chosen.candidate.num_envs).notes)
        tuned = Tuned(
            settings=settings,
            algo=name_of(self.plan.algorithm),
            env=self.plan.source.to_dict(),
            machine=describe_machine(),
            versions=versions(),
            figures=self._figures(trials, chosen, limits, moved),
            interrupted=interrupted,
        )
        return Outcome(tuned, trials, chosen.candidate, limits, moved)

    def _figures(
        self, trials: list[Trial], chosen: Trial, limits: Limits, reasons: list[str]
    ) -> dict[str, Any]:
        low, high = chosen.spread
        return {
            "steps_per_second": chosen.rate,
            "spread": [low, high],
            "loop_steps_per_second": chosen.loop_rate if chosen.learns else None,
            "compared_by": "whole loop" if self._whole_loop else "collecting",
            "limits": "; ".join(limits.lines),
            "envs_by_cores": limits.by_cores,
            "envs_by_memory": limits.by_memory,
            "binds": limits.binds,
            "scaling": reasons,
            "tried": [trial_to_dict(trial) for trial in trials],
        }


def _listed(counts: set[int]) -> str:
    """Return numbers as a list in a sentence."""
    *first, last = map(str, sorted(counts))
    return f"{', '.join(first)} and {last}" if first else last


def _has_batch(source: Any) -> bool:
    """Return whether a run may train in a native batch of the envs."""
    try:
        source.batch_arguments()
    except RookeryError:  # the error says why; other modes are still measured
        return False
    return True
