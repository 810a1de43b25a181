"""WorkerCollector: the policy acts where the envs live; a rollout costs one message per worker."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import cloudpickle
from gymnasium import Space

from rookery.collect.actor_pool import ActorPool
from rookery.collect.base import Collector, CollectorStatistics, memory_size
from rookery.collect.rollout_buffers import RolloutShape
from rookery.collect.rollout_queue import RolloutQueue
from rookery.common.arguments import check_choice
from rookery.common.references import imported
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
_ACTING = "rookery.collect.actor"


class WorkerCollector(Collector):
    """Collects rollouts in worker processes that act by themselves.

    Every worker has a copy of the policy, steps its envs T times without asking anybody, and
    writes straight into rollout rows in shared memory. New weights reach the copies between
    rollouts: a rollout's rows of one env all come from one version.

    ``mode="sync"``: `collect` publishes the weights, all workers fill a rollout, and it returns
    views of it, which stay valid until the `collect` after the next. With one worker it is, to the
    last bit, what `SyncCollector` gives over the same envs; with several, worker i draws its
    actions from stream i of the policy's generator (see `Policy.use_stream`). A recurrent policy
    remembers, in every worker, the episodes of that worker's envs.

    ``mode="async"``: workers go on while the learner learns, each at most two rollouts ahead of
    it, with the weights that were newest when they began. `collect` returns, side by side and as
    arrays of the caller's own, what ``2 / max_policy_lag`` of the workers finished first, and more
    where a rollout would grow too old otherwise: for that it waits. ``env_ids`` says whose they
    are, ``policy_version`` which weights acted; `rookery.learn.on_policy.impala.Impala` learns from
    such rollouts.

    With ``faults=FaultPolicy("restart")`` a worker that dies, hangs or whose env raises is
    replaced, as those of a vector env are. A fault closes a transition of each of its envs, which
    ``Rollout.valid`` leaves out; ``Rollout.after_reset`` tells where it came between two rollouts,
    or where the new worker, which acts with the newest weights, had to begin a rollout anew.

    After an error the collector is closed.

    Attributes:
        policy: whose weights are published.
        single_observation_space: of one env.
        single_action_space: of one env.
        num_workers: worker processes.
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
        """Start the workers; the envs are reset by the first `collect`.

        Args:
            env: what `rookery.make_vec` takes.
            policy: who acts, or what makes one from observation space and action space. Given a
                policy, what it needs (torch, for images) is in memory once for all workers.
            num_envs: envs, over all workers.
            num_workers: worker processes; None means one per usable CPU.
            num_steps: steps of every env in a rollout, ``T``.
            mode: "sync" or "async".
            seed: of the first reset, as `VectorEnv.reset` takes it.
            max_policy_lag: in async mode, the most versions that a rollout may be behind the
                policy's when it is returned, if the version grows by one between two calls.
            info_keys: names of numbers in the infos with which episodes end; a rollout's
                ``final_info`` has them.
            between_waits: called when `collect` begins, and ten times a second while it waits for
                workers; what it raises leaves `collect` and closes the collector. So does a signal
                handler that raises, but it may strike amid a message to a worker, and then workers
                are ended without closing their envs.
            env_kwargs: given to every env.
            wrappers: callables ``Env -> Env``, applied where the env lives.
            start_method: see `rookery.make_vec`.
            threads_per_worker: cap on numerical threads in workers.
            faults: deadlines, and whether workers are replaced.
            backend: "process": on this machine; "ray": on the nodes of a Ray cluster.
            ray_options: for "ray", see `rookery.make_vec`.

        Raises:
            UsageError: when the arguments cannot work.
            WorkerError: when an env could not be built.
        """
        _check(mode, num_steps, max_policy_lag)
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
            size = memory_size(self.policy)
            shape = RolloutShape(*spaces, venv.num_envs, num_steps, memory_size=size)
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
        """Publish the policy's weights, and return a rollout; see the class.

        Raises:
            EnvFailed: when an env raises.
            WorkerDied: when a worker process ends.
            ClosedError: when the collector is closed, also by an earlier error.
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
        except BaseException:  # a Ctrl-C too leaves rollouts half done
            self.close()
            raise

    def reset(self, seed: Sequence[int] | None = None) -> None:
        """Choose the seeds with which the first `collect` resets the envs.

        Raises:
            UsageError: when it was already called; the workers are amid their rollouts then.
        """
        if self._is_reset:
            raise UsageError("reset: the workers have begun to collect; make a new WorkerCollector")
        self._seeds = consecutive_seeds(seed, self.num_envs)

    def publish(self) -> None:
        """Have workers act with the policy's present weights, from their next rollout on.

        `collect` does it by itself. An asynchronous learner may do it more often.
        """
        if self.closed:
            raise ClosedError("publish: this collector is closed")
        if self.policy.model is None and _digest(self.policy) != self._digest:
            raise UsageError(
                f"{type(self.policy).__name__} was changed, but has no model through which its "
                "copies in the workers could learn of it; make it a rookery.TorchPolicy, give it a "
                "model (see rookery.Policy), or use rookery.SyncCollector"
            )
        self._pool.publish()

    def close(self) -> None:
        """Stop the workers and close the envs; rollouts that were returned stay valid."""
        if not self.closed:
            self._pids, self._statistics = self.pids, self.statistics()
            self._telemetry = self._pool.telemetry(looks=False)
            self.closed = True
            self._pool.close()

    @property
    def pids(self) -> tuple[int, ...]:
        """Process ids of the present workers; after `close`, of the last ones."""
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
    """The workers, and the kind of pool that has them fill rollouts."""
    check_choice("backend", backend, ("process", "ray"))
    if backend == "process":
        if ray_options is not None:
            raise ConfigError("ray_options are for backend='ray', not for 'process'")
        return ProcessVectorEnv(recipes, num_workers=num_workers, **options), ActorPool
    shares = imported(_NODE_SHARES)(recipes, num_workers, options, ray_options, between_waits)
    return shares, imported(_RAY_POOL)


def _check(mode: str, num_steps: int, max_policy_lag: int) -> None:
    if mode not in ("sync", "async"):
        raise ConfigError(f"mode must be 'sync' or 'async', got {mode!r}")
    if num_steps < 1:
        raise ConfigError(f"num_steps must be at least 1, got {num_steps}")
    if max_policy_lag < 1:
        raise ConfigError(f"max_policy_lag must be at least 1, got {max_policy_lag}")


def _check_policy(policy: Policy) -> None:
    if policy.model is not None and type(policy).__reduce__ is object.__reduce__:
        raise ConfigError(
            f"{type(policy).__name__} has a model, but does not say how a worker is to rebuild it "
            "around that; a plain pickle would cut it off from new weights. Make it a "
            "rookery.TorchPolicy, give it a __reduce__ that does, or use SyncCollector"
        )


def _digest(policy: Policy) -> int:
    """Tell by the result whether a policy without a model is what its copies were made of."""
    version, policy.version = policy.version, 0  # counts up whether it changes or not
    try:
        return zlib.crc32(cloudpickle.dumps(policy))
    finally:
        policy.version = version


def _preload(policy: Policy | PolicyMaker) -> tuple[str, ...]:
    """What the workers need in memory: their side of collecting, and the policy's own module."""
    home = type(policy).__module__
    return (_ACTING, home) if home.startswith("rookery.policy.") else (_ACTING,)
