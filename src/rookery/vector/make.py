"""The function ``make_vec``, which checks its arguments, then imports and creates a backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gymnasium.vector import AutoresetMode

from rookery.common.arguments import check_choice, check_flag, unfit, whole_number
from rookery.common.importing import imported
from rookery.env.recipe import EnvRecipe, EnvSource, Wrapper, make_recipes
from rookery.errors import ConfigError
from rookery.vector.agreement import parse_autoreset_mode
from rookery.vector.crash import CrashRecorder, checked_folder
from rookery.worker.fault_policy import FaultPolicy
from rookery.worker.start.launch import resolve_start_method

if TYPE_CHECKING:
    from rookery.vector.agreement import ObservationMode
    from rookery.vector.base import VectorEnv

# The vector env class of each backend, and the optional arguments of `make_vec` that it accepts.
# A new backend needs an entry here and a file with a subclass of `VectorEnv`; see vector/thread.py.
_CLASSES = {
    "serial": ("rookery.vector.serial:SerialVectorEnv", ()),
    "thread": ("rookery.vector.thread:ThreadVectorEnv", ("num_workers", "faults")),
    "process": (
        "rookery.vector.process:ProcessVectorEnv",
        ("num_workers", "threads_per_worker", "faults", "start_method", "isolate", "caller_steps"),
    ),
    "ray": (
        "rookery.cluster.ray_vector_env:RayVectorEnv",
        ("num_workers", "threads_per_worker", "faults", "ray_options"),
    ),
}
BACKENDS = ("auto", "native", *_CLASSES)


def make_vec(
    env: EnvSource | Sequence[Callable[..., Any]],
    num_envs: int | None = None,
    backend: str = "auto",
    num_workers: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    wrappers: Sequence[Wrapper] = (),
    autoreset_mode: str | AutoresetMode = "next_step",
    start_method: str | None = None,
    isolate: bool = False,
    caller_steps: bool | None = None,
    copy: bool = True,
    threads_per_worker: int | None = 1,
    faults: FaultPolicy | None = None,
    crash_dir: str | Path | None = None,
    observation_mode: ObservationMode = "same",
    envs_per_batch: int | None = None,
    ray_options: Mapping[str, Any] | None = None,
) -> VectorEnv:
    """Create many environments behind one ``gymnasium.vector.VectorEnv``.

    Args:
        env: a Gymnasium id, ``"package.module:Id"``, an EnvSpec, a callable that returns an env, or
            a list with one callable per env. For ``"native"`` a callable
            ``(num_envs) -> gymnasium.vector.VectorEnv``, or an id with a ``vector_entry_point``.
        num_envs: number of envs; None means the length of the list, or 1.
        backend: ``"serial"`` steps envs in this process, ``"thread"`` in threads of this process,
            ``"process"`` in worker processes, and ``"ray"`` on the nodes of a Ray cluster.
            ``"native"`` uses the batched form of the env. ``"auto"`` measures one env for about 0.2
            s and chooses the fastest of ``"serial"`` and ``"process"``.
        num_workers: number of workers; None means one process per usable CPU, one thread per env,
            the choice of ``"auto"``, or as many as fit into the Ray cluster. For ``"native"`` each
            worker process runs one batch, and None or 0 means one batch in this process.
        env_kwargs: keyword arguments of every env; may contain :class:`rookery.Deferred` objects.
        wrappers: callables ``Env -> Env``, applied in the process of the env, innermost first.
        autoreset_mode: ``"next_step"``, ``"same_step"``, ``"disabled"`` or Gymnasium's enum.
        start_method: ``"forkserver"``, ``"spawn"`` or ``"fork"``; None means the best one for this
            platform.
        isolate: one env per worker process, and none in this process.
        caller_steps: this process steps some of the envs; None means the choice of ``"auto"``.
        copy: False returns arrays that are views, valid until the step after the next.
        threads_per_worker: maximum number of BLAS, OpenMP and torch threads in each worker; None
            sets no limit.
        faults: handling of envs that raise, hang or crash; by default an error is raised, and there
            is no deadline.
        crash_dir: folder for crash reports, which ``rookery replay`` repeats. Recording costs about
            1 us per step. None writes no reports.
        observation_mode: ``"same"``, ``"different"`` or a pair (batched space, single space).
        envs_per_batch: number of envs per native batch, each in a worker process; the last batch
            may be smaller. Implies ``backend="native"``.
        ray_options: options for ``"ray"``. ``address`` is the address of a cluster; ``"auto"``
            means a cluster on this machine, and None means that of ``RAY_ADDRESS``, or a new local
            one. All others apply to each worker: ``num_cpus`` (default 1), ``num_gpus``,
            ``resources``, ``memory``, ``runtime_env``, ``scheduling_strategy`` (default
            ``"SPREAD"``), ``label_selector``, ``accelerator_type``.

    Returns:
        A vector env. Its attribute ``choice`` contains the choice of ``"auto"`` and the reason.

    Raises:
        UsageError: the arguments are invalid or contradict each other; nothing was started.
        WorkerError: an env could not be built.
    """
    check_choice("backend", backend, BACKENDS)
    resolve_start_method(start_method)
    mode = parse_autoreset_mode(autoreset_mode)
    faults = _checked_policy(faults)
    _check_flags(isolate=isolate, copy=copy, caller_steps=caller_steps)
    if envs_per_batch is not None:
        backend = _native_for_batches(backend)
    if backend == "native" and num_workers == 0:
        num_workers = None
    _check_counts(
        num_workers=num_workers,
        threads_per_worker=threads_per_worker,
        envs_per_batch=envs_per_batch,
    )
    if backend == "native":
        _refuse_for_native(
            isolate=isolate,
            caller_steps=caller_steps,
            crash_dir=crash_dir,
            observation_mode=observation_mode != "same",
        )
        from rookery.vector.native import NativePlan, make_native

        where = NativePlan(
            num_workers, envs_per_batch, start_method, threads_per_worker, faults, copy
        )
        return make_native(env, num_envs, env_kwargs, wrappers, mode, where)
    needs_workers = faults.restarts or faults.has_deadline
    _require_options(backend, needs_workers, isolate, caller_steps, start_method, ray_options)
    recipes = make_recipes(env, num_envs, env_kwargs, wrappers)
    if crash_dir is not None:
        crash_dir = checked_folder(crash_dir).absolute()  # an env may change the working directory
    plan: dict[str, Any] = {
        "num_workers": num_workers,
        "start_method": start_method,
        "isolate": isolate,
        "caller_steps": bool(caller_steps),
        "threads_per_worker": threads_per_worker,
        "ray_options": ray_options,
        "faults": faults,
    }
    choice = None
    if backend == "auto" and (isolate or needs_workers):
        backend = "process"
    if backend == "auto":
        from rookery.vector.auto.choose import choose

        choice = choose(recipes, num_workers, caller_steps, start_method, threads_per_worker, copy)
        backend = choice.backend
        plan.update(num_workers=choice.num_workers, caller_steps=choice.caller_steps)
    venv = _open(
        backend, recipes, plan, copy=copy, observation_mode=observation_mode, autoreset_mode=mode
    )
    venv.choice = choice
    if crash_dir is not None:
        space = venv.single_action_space
        venv.crash_recorder = CrashRecorder(crash_dir, recipes, space, mode)
    if isinstance(env, (list, tuple)) or callable(env):
        venv.spec = None  # the spec of the env may describe only a part of it
    return venv


def _checked_policy(faults: Any) -> FaultPolicy:
    if faults is None:
        return FaultPolicy()
    if not isinstance(faults, FaultPolicy):
        raise unfit("faults", "a rookery.FaultPolicy or None", faults)
    return faults


def _check_flags(**flags: Any) -> None:
    for name, value in flags.items():
        if name != "caller_steps" or value is not None:
            check_flag(name, value)


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if value is not None:
            whole_number(name, value, 1)


def _require_options(
    backend: str,
    needs_workers: bool,
    isolate: bool,
    caller_steps: bool | None,
    start_method: str | None,
    ray_options: Any,
) -> None:
    """Raise if the class of a backend does not accept an argument that the user passed."""
    if ray_options is not None and backend != "ray":
        raise ConfigError(f"ray_options are for backend='ray', not for {backend!r}")
    if backend == "auto":
        return
    accepted = _CLASSES[backend][1]
    if needs_workers and "faults" not in accepted:
        raise ConfigError(
            f"backend={backend!r} runs envs in this process, where they cannot be killed at a "
            "deadline or restarted; this FaultPolicy needs backend='process'"
        )
    if isolate and "isolate" not in accepted:
        raise ConfigError(f"isolate=True is for backend='process', not for {backend!r}")
    if caller_steps and "caller_steps" not in accepted and backend != "serial":
        raise ConfigError(f"caller_steps=True is for backend='process', not for {backend!r}")
    if start_method is not None and backend == "ray":  # Ray starts its workers itself
        raise ConfigError("start_method is for backend='process', not for 'ray'")


def _native_for_batches(backend: str) -> str:
    if backend not in ("auto", "native"):
        raise ConfigError(f"envs_per_batch is for backend='native', not for {backend!r}")
    return "native"


def _refuse_for_native(**given: Any) -> None:
    for name, value in given.items():
        if value:
            raise ConfigError(
                f"{name} needs envs that are stepped one by one; backend='native' steps whole "
                "batches of envs"
            )


def _open(
    backend: str, recipes: list[EnvRecipe], given: dict[str, Any], **options: Any
) -> VectorEnv:
    address, names = _CLASSES[backend]
    venv: VectorEnv = imported(address)(recipes, **{n: given[n] for n in names}, **options)
    return venv
