"""WorkerCollector: the policy acts in the workers; a rollout takes one message per worker."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import cloudpickle
from gymnasium import Space

from rookery.collect.actor_pool import ActorPool
from rookery.collect.base import Collector, CollectorStatistics, memory_width
from rookery.collect.rollout_buffers import RolloutShape
from rookery.collect.rollout_queue import RolloutQueue
from rookery.common.arguments import check_choice, whole_number
from rookery.common.importing import imported
from rookery.common.seeding import consecutive_seeds
from rookery.env.recipe import EnvRecipe, make_recipes
from rookery.errors import ClosedError, ConfigError, UsageError, WorkerError
from rookery.policy.base import Policy
from rookery.rollout import Rollout
from rookery.vector.process import ProcessVectorEnv
from rookery.vector.statistics.snapshot import Statistics
from rookery.worker.fault_policy import FaultPolicy

if TYPE_CHECKING:
    from rookery.cluster.ray_pool import RayPool

Mode = Literal["sync", "async"]
PolicyMaker = Callable[[Space[Any], Space[Any]], Policy]

_NODE_SHARES = "rookery.cluster.share_handle:NodeShares"
_RAY_POOL = "rookery.cluster.ray_pool:RayPool"
_ACTOR_MODULE = "rookery.collect.actor"


class WorkerCollector(Collector):
    """Collects rollouts in worker processes, in which copies of the policy act.

    Each worker steps its envs T times without messages, and writes into rows of the rollout in
    shared memory. The copies receive new weights between rollouts, so all rows of one env in a
    rollout come from one version of the policy.

    ``mode="sync"``: `collect` publishes the weights, waits until all workers have filled a rollout,
    and returns views of it. The views stay valid until the `collect` after the next. With one
    worker the rollouts equal those of `SyncCollector` to the last bit. With several workers, worker
    i draws its actions from stream i of the policy's generator (see `Policy.use_stream`). Each
    worker keeps the memory of a recurrent policy for its envs.

    ``mode="async"``: workers continue while the learner learns, each at most two rollouts ahead,
    with the newest weights at the start of each rollout. `collect` returns a copy of the rollouts
    that the first ``2 / max_policy_lag`` of the workers have finished. It waits for more workers if
    their rollouts would become too old. ``env_ids`` names the envs, and ``policy_version`` the
    weights that acted. `rookery.learn.on_policy.impala.Impala` can learn from such rollouts.

    With ``faults=FaultPolicy("restart")`` a worker is replaced if it dies or hangs, or if an env
    raises. A fault costs one transition of each env of the worker, which ``Rollout.valid``
    excludes. ``Rollout.after_reset`` marks envs that were reset before a rollout.

    After an error the collector is closed.

    Attributes:
        policy: the policy that acts; its weights are published.
        single_observation_space: observation space of one env.
        single_action_space: action space of one env.
        num_workers: number of worker processes.
    """

    def __init__(
        self,
        env: Any,
        policy: Policy | PolicyMaker,
        num_envs: int,
        num_workers: int | None = None,
        num_steps: int = 128,
        mode: Mode = "sync",
        *,
        seed: int | Sequence[int | None] | None = None,
        max_policy_lag: int = 4,
        info_keys: Sequence[str] = (),
        between_waits: Callable[[], None] = lambda: None,
        env_kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[Callable[..., Any]] = (),
        start_method: str | None = None,
        threads_per_worker: int | None = 1,
        faults: FaultPolicy | None = None,
        backend: str = "process",
        ray_options: Mapping[str, Any] | None = None,
    ) -> None:
        """Start the workers; the first `collect` resets the envs.

        Args:
            env: an id, a spec, a callable or a list of callables, as for `rookery.make_vec`.
            policy: a policy, or a callable ``(observation space, action space) -> Policy``. If a
                policy is given, workers share the memory of the modules that it needs.
            num_envs: number of envs of all workers together.
            num_workers: number of worker processes; None means one per usable CPU.
            num_steps: steps of every env in a rollout, ``T``.
            mode: "sync" or "async".
            seed: seed or seeds of the first reset, as for `VectorEnv.reset`.
            max_policy_lag: in async mode, the largest number of versions between the policy and a
                returned rollout, if the version grows by one between two calls.
            info_keys: keys of numbers in the infos of episode ends, which a rollout stores in
                ``final_info``.
            between_waits: called when `collect` begins, and ten times a second while it waits for
                workers. If it raises, `collect` raises and the collector is closed. A signal
                handler that raises has the same effect, but if it interrupts a message to a
                worker, the workers are killed without closing their envs.
            env_kwargs: arguments of every env.
            wrappers: callables ``Env -> Env``, applied in the workers.
            start_method: how worker processes start; see `rookery.make_vec`.
            threads_per_worker: maximum number of numerical threads in a worker.
            faults: deadlines, and the limits of restarts.
            backend: "process" for this machine, "ray" for the nodes of a Ray cluster.
            ray_options: options of the backend "ray"; see `rookery.make_vec`.

        Raises:
            UsageError: the arguments are invalid.
            WorkerError: an env could not be built.
        """
        check_choice("mode", mode, ("sync", "async"))
        whole_number("num_steps", num_steps, 1)
        whole_number("max_policy_lag", max_policy_lag, 1)
        if isinstance(policy, Policy):
            _check_policy(policy)
        recipes = make_recipes(env, num_envs, env_kwargs, wrappers)
        options = {
            "autoreset_mode": "same_step",
            "start_method": start_method,
            "threads_per_worker": threads_per_worker,
            "faults": faults,
            "preload": _preload(policy),
        }
        venv, pool = _opened(backend, recipes, num_workers, options, ray_options, between_waits)
        try:
            spaces = venv.single_observation_space, venv.single_action_space
            self.policy = policy if isinstance(policy, Policy) else policy(*spaces)
            _check_policy(self.policy)
            size = memory_width(self.policy)
            shape = RolloutShape(*spaces, venv.num_envs, num_steps, memory_width=size)
            self._seeds = consecutive_seeds(seed, venv.num_envs)
            self._pool: ActorPool | RayPool = pool(
                venv, self.policy, shape, between_waits, tuple(info_keys), faults
            )
            self._digest = _digest(self.policy) if self.policy.model is None else 0
        except BaseException:
            venv.close(terminate=True)
            raise
        self.single_observation_space, self.single_action_space = spaces
        self.num_envs, self.num_steps, self.num_workers = venv.num_envs, num_steps, venv.num_workers
        self._pids: tuple[int, ...] = venv.pids
        self._statistics = self._pool.statistics()
        self.closed = False
        self._between_waits = between_waits
        self._is_reset = False
        self._buffer = -1
        self._queue = RolloutQueue(self._pool, max_policy_lag) if mode == "async" else None

    def collect(self) -> Rollout:
        """Publish the policy's weights, and return a rollout.

        Raises:
            EnvFailed: an env raised.
            WorkerDied: a worker process died.
            ClosedError: the collector is closed, possibly because of an earlier error.
        """
        if self.closed:
            raise ClosedError("collect: this collector is closed")
        try:
            self._between_waits()
            self.publish()
            if not self._is_reset:
                self._pool.reset(self._seeds)
                self._is_reset = True
            rollout = self._collect()
            self.policy_s, self.env_s = self._pool.policy_s, self._pool.env_s
            return rollout
        except BaseException:  # after a Ctrl-C, too, rollouts are incomplete
            self.close()
            raise

    def reset(self, seed: Sequence[int] | None = None) -> None:
        """Set the seeds of the first reset.

        Raises:
            UsageError: `collect` was already called.
        """
        if self._is_reset:
            raise UsageError(
                "reset: cannot reset after the first collect(); make a new WorkerCollector"
            )
        self._seeds = consecutive_seeds(seed, self.num_envs)

    def publish(self) -> None:
        """Let workers use the policy's present weights from their next rollout on.

        `collect` calls this. An asynchronous learner may call it more often.
        """
        if self.closed:
            raise ClosedError("publish: this collector is closed")
        if self.policy.model is None and _digest(self.policy) != self._digest:
            raise UsageError(
                f"{type(self.policy).__name__} was changed, but has no model, so the change "
                "cannot reach its copies in the workers; make it a rookery.TorchPolicy, give it a "
                "model (see rookery.Policy), or use rookery.SyncCollector"
            )
        self._pool.publish()

    def close(self) -> None:
        """Stop the workers and close the envs; returned rollouts stay valid."""
        if not self.closed:
            self._pids, self._statistics = self.pids, self.statistics()
            self._telemetry = self._pool.telemetry(looks=False)
            self.closed = True
            self._pool.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the present workers; after `close`, of the last workers."""
        if self.closed:
            return self._pids
        return self._pool.pids

    def statistics(self) -> CollectorStatistics:
        return self._statistics if self.closed else self._pool.statistics()

    def telemetry(self) -> Statistics:
        return self._telemetry if self.closed else self._pool.telemetry()

    def __enter__(self) -> WorkerCollector:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def _collect(self) -> Rollout:
        if self._queue is not None:
            return self._queue.collect(self.policy.version)
        self._buffer = (self._buffer + 1) % self._pool.shape.num_buffers
        rollout: Rollout = self._pool.collect(self._buffer)
        if (rollout.policy_version != self.policy.version).any():
            raise WorkerError(
                f"Workers acted with weights of versions {set(rollout.policy_version.tolist())} "
                f"instead of {self.policy.version}",
                env_ids=rollout.env_ids.tolist(),
                command="collect",
            )
        return rollout


def _opened(
    backend: str,
    recipes: Sequence[EnvRecipe],
    num_workers: int | None,
    options: dict[str, Any],
    ray_options: Mapping[str, Any] | None,
    between_waits: Callable[[], None],
) -> tuple[Any, type]:
    """Start the workers; return them and the class of the pool that uses them."""
    check_choice("backend", backend, ("process", "ray"))
    if backend == "process":
        if ray_options is not None:
            raise ConfigError("ray_options are for backend='ray', not for 'process'")
        return ProcessVectorEnv(recipes, num_workers=num_workers, **options), ActorPool
    shares = imported(_NODE_SHARES)(recipes, num_workers, options, ray_options, between_waits)
    return shares, imported(_RAY_POOL)


def _check_policy(policy: Policy) -> None:
    if policy.model is not None and type(policy).__reduce__ is object.__reduce__:
        raise ConfigError(
            f"{type(policy).__name__} has a model, but no __reduce__, so its copies in workers "
            "would not receive new weights. Make it a rookery.TorchPolicy, give it a __reduce__ "
            "that rebuilds it around its model, or use SyncCollector"
        )


def _digest(policy: Policy) -> int:
    """Return a checksum of a policy without a model, to detect that it was changed."""
    version, policy.version = policy.version, 0  # also grows if nothing changed
    try:
        return zlib.crc32(cloudpickle.dumps(policy))
    finally:
        policy.version = version


def _preload(policy: Policy | PolicyMaker) -> tuple[str, ...]:
    """Return the modules that workers import at their start."""
    home = type(policy).__module__
    return (_ACTOR_MODULE, home) if home.startswith("rookery.policy.") else (_ACTOR_MODULE,)
