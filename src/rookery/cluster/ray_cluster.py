"""Ray, as far as workers need it: joining a cluster, and placing actors on its nodes.

The only code that knows Ray is here, in ``ray_worker.py``, ``cluster/ray_pool.py`` and
``cluster/cluster_learners.py``.
"""

from __future__ import annotations

import math
import numbers
import os
import socket
import sys
import sysconfig
import time
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from rookery.common.arguments import not_a_choice, unfit
from rookery.common.cpus import usable_cpus
from rookery.common.version import __version__
from rookery.errors import ConfigError, MissingExtra, WorkerError
from rookery.worker.start.forkserver import search_path
from rookery.worker.wait.event import keep_no_names

# What `ray_options` may hold: how to find the cluster, and what Ray is told of each actor.
_CLUSTER_OPTIONS = ("address",)
_ACTOR_OPTIONS = (
    "num_cpus",
    "num_gpus",
    "resources",
    "memory",
    "accelerator_type",
    "scheduling_strategy",
    "label_selector",
    "runtime_env",
)
_AMOUNTS = ("num_cpus", "num_gpus", "memory")
_TEXTS = ("address", "accelerator_type")
_DICTS = ("resources", "runtime_env", "label_selector")
_MOST_WORDS = 400  # characters of what Ray says
_PLACE_S = 10.0  # after which an actor that waits for CPUs takes those of others
_TELL_AFTER_S = 10.0  # of waiting for a place
_TELL_AGAIN_S = 60.0
_ANSWER_S = 10.0
_LEAVE_S = 2.0


def require_ray() -> Any:
    """The module ``ray``.

    Raises:
        MissingExtra: when it is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("backend='ray' needs Ray: pip install 'rookery[ray]'") from error
    return ray


_own_sessions: set[str] = set()
_is_forked_copy = False


def _note_fork() -> None:
    global _is_forked_copy
    ray = sys.modules.get("ray")
    _is_forked_copy = _is_forked_copy or (ray is not None and ray.is_initialized())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_note_fork)


def session() -> str:
    """Which session of Ray this process is in; empty after ``ray.shutdown()``.

    To be looked at before actors of a session are called: Ray would begin another one by itself.
    """
    ray = require_ray()
    if not ray.is_initialized():
        return ""
    context = ray.get_runtime_context()  # in every Ray that is started anew, the first job is 1
    return f"{context.get_node_id()}/{context.get_job_id()}"


class Cluster:
    """A cluster that this process has joined, and what actors of ours need there.

    Args:
        ray_options: ``address`` of a cluster (``"auto"`` finds one that runs on this machine,
            ``"local"`` starts Ray here; None is that of ``RAY_ADDRESS``, or local), and what Ray is
            told of each actor: ``num_cpus`` (1), ``num_gpus``, ``resources``, ``memory``,
            ``runtime_env``, ``scheduling_strategy`` (``"SPREAD"``), ``label_selector``,
            ``accelerator_type``.
        num_workers: how many workers are wanted; a Ray that is started here has CPUs for them.

    Attributes:
        options: for actors.
        num_cpus: that one worker needs.
        is_own: whether Ray was started here, by us, so that nobody else takes its CPUs.

    Raises:
        MissingExtra: when Ray is not installed.
        ConfigError: when there is no such option, or no such cluster.
    """

    def __init__(self, ray_options: Mapping[str, Any] | None, num_workers: int | None) -> None:
        given = _checked(ray_options)
        self._ray = require_ray()
        address = given.pop("address", None)
        self.options: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **given}
        self.num_cpus = float(self.options["num_cpus"])
        _join(self._ray, address, (num_workers or 0) * self.num_cpus)
        self._session = session()
        self.is_own = self._session in _own_sessions

    @property
    def is_joined(self) -> bool:
        """Whether this process is still in the session of Ray in which this was made."""
        return session() == self._session

    def require_session(self) -> None:
        """Raise a WorkerError if this process has left the cluster since."""
        if not self.is_joined:
            raise WorkerError(
                "Ray was shut down, and with it all workers; make another vector env or collector",
                command="make",
            )

    def nodes(self) -> list[dict[str, Any]]:
        """The nodes that are alive, as Ray describes them."""
        return [node for node in self._ray.nodes() if node["Alive"]]

    def capacity(self) -> int:
        """For how many workers the nodes have room when nobody else uses them, at least 1."""
        return max(sum(map(self._room, self.nodes())), 1)

    def workers_per_node(self) -> int:
        """For how many workers the smallest node has room that has room for any; at least 1."""
        rooms = map(self._room, self.nodes())
        return min([room for room in rooms if room > 0], default=usable_cpus())

    def _room(self, node: Mapping[str, Any]) -> int:
        """For how many workers a node has room when nobody else uses it."""
        has, needs = node["Resources"], self._needs(self.options)
        fits = (int(has.get(name, 0.0) / need) for name, need in needs.items())
        return min(fits, default=usable_cpus())

    def require_place(self) -> None:
        """Raise a ConfigError if no node could ever run one of our actors."""
        needs, labels = self._needs(self.options), _plain_labels(self.options)
        nodes = self.nodes()
        for node in nodes:
            if self._room(node) and labels.items() <= node.get("Labels", {}).items():
                return
        have = "; ".join(_in_words(_shown(node["Resources"])) for node in nodes) or "no node"
        raise ConfigError(
            f"No node of the Ray cluster has what a worker needs ({_in_words(needs)}"
            f"{f', labels {labels}' if labels else ''}): {have}. "
            "Change ray_options, or add such a node first."
        )

    def shares_cpus(self, num_cpus: float) -> bool:
        """Whether an actor must do with CPUs that others use, since too few are free now.

        Nothing but CPUs can be shared: an actor that needs other things waits for them.
        """
        return num_cpus > self.free().get("CPU", 0.0)

    def num_cpus_of_all(self) -> float:
        """CPUs of all nodes, whoever uses them. Unlike what is free, it is known at once."""
        return float(sum(node["Resources"].get("CPU", 0.0) for node in self.nodes()))

    def hire(self, kind: type, groups: Mapping[str, int], options: Mapping[str, Any]) -> Any:
        """An actor that is being started somewhere.

        Args:
            kind: its class; made of our version and of :func:`folders_of_modules`.
            groups: threads of it, beside that which does what it is told; by name.
            options: of the actor.
        """
        self.require_session()
        actor = self._ray.remote(concurrency_groups=dict(groups), max_restarts=0)(kind)
        try:
            return actor.options(**options).remote(__version__, folders_of_modules())
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Ray does not take these ray_options: {error}") from error

    def waiting(self, what: str, options: Mapping[str, Any]) -> Waiting:
        """Tells the user of what waits for a place."""
        return Waiting(self, self._needs(options), what)

    def free(self) -> dict[str, float]:
        """What is free on all nodes together."""
        return dict(self._ray.available_resources())

    @staticmethod
    def _needs(options: Mapping[str, Any]) -> dict[str, float]:
        needs = {
            "CPU": options.get("num_cpus") or 0,
            "GPU": options.get("num_gpus") or 0,
            "memory": options.get("memory") or 0,
            **(options.get("resources") or {}),
        }
        if options.get("accelerator_type"):
            needs[f"accelerator_type:{options['accelerator_type']}"] = 0.001  # as Ray has it
        return {name: float(need) for name, need in needs.items() if need}


class Waiting:
    """Looks after an actor while it waits for a place in the cluster.

    Args:
        cluster: where.
        needs: resources that the actor needs.
        what: waits.
    """

    def __init__(self, cluster: Cluster, needs: Mapping[str, float], what: str) -> None:
        self._cluster, self._needs, self._what = cluster, needs, what
        self._began = time.perf_counter()
        self._tell_at = self._began + _TELL_AFTER_S
        self._look_at = self._began + _PLACE_S

    def had_better_share(self) -> bool:
        """Whether the actor had better take CPUs of others than wait for its own.

        A node that has some may never come.
        """
        now, num_cpus = time.perf_counter(), self._needs.get("CPU", 0.0)
        if not num_cpus or now < self._look_at:
            return False
        self._look_at = now + _PLACE_S  # it may be only slow
        return self._cluster.shares_cpus(num_cpus)

    def look(self) -> None:
        """Warn, if it is time to."""
        now = time.perf_counter()
        if now < self._tell_at or not self._cluster.is_joined:
            return
        self._tell_at = now + _TELL_AGAIN_S
        free = _in_words(_shown(self._cluster.free())) or "nothing"
        needs = _in_words(self._needs) or "no CPU of its own, but a node that answers"
        warnings.warn(
            f"{self._what} has waited {now - self._began:.0f} s for the Ray cluster to start it. "
            f"It needs {needs}; free on all nodes together: {free}",
            RuntimeWarning,
            stacklevel=2,
        )


def folders_of_modules() -> list[str]:
    """Folders in which this process finds modules, but for Python's and its installed packages."""
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    inside = tuple(path + os.sep for path in installed)
    found = [os.path.realpath(entry) for entry in search_path()]
    return [path for path in found if path not in installed and not path.startswith(inside)]


def be_like_the_caller(version: str, folders: Sequence[str]) -> None:
    """Prepare this process, an actor's, for what a caller elsewhere is going to send.

    Args:
        version: of the caller's rookery.
        folders: where the caller finds modules of its own; those that exist here are looked into
            after all others.

    Raises:
        ConfigError: when another version is installed here.
    """
    if version != __version__:
        raise ConfigError(
            f"this node has rookery {__version__}, the caller {version}; install the same "
            "version on all nodes"
        )
    keep_no_names()  # Ray ends all processes of an actor's, the resource tracker among them
    sys.path += [f for f in folders if f not in sys.path and os.path.isdir(f)]


def this_node() -> str:
    """Address and id of the node of the cluster on which this process is."""
    import ray

    node_id = ray.get_runtime_context().get_node_id()
    address: Any = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    return f"{address}/{node_id[:6]}"


def in_words(error: BaseException) -> str:
    """What happened to an actor, in a line: Ray's first sentence and its last one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return f"was lost ({type(error).__name__})"
    text = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
    return f"was lost: {text if len(text) < _MOST_WORDS else text[:_MOST_WORDS] + ' ...'}"


def end_actor(actor: Any, group: str) -> None:
    """End an actor; if it answers, it leaves no name in the system.

    One of which nothing was heard yet may be amid its start, and have names; one for which there is
    no place yet is waited for in vain.

    Args:
        actor: has a method ``leave`` that calls ``forget_all_names``.
        group: whose thread is free to call that.
    """
    wait_for_any([actor.leave.options(concurrency_group=group).remote()], _LEAVE_S)
    require_ray().kill(actor)


def wait_for_any(references: Sequence[Any], seconds: float) -> list[Any]:
    """Those of some references of which one has come first; none when the time is over.

    What a signal handler raises meanwhile is raised as it is.
    """
    try:
        ready: list[Any] = require_ray().wait(list(references), num_returns=1, timeout=seconds)[0]
    except SystemError as error:  # as Ray passes on whatever is raised amid its waiting
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
    return ready


def _checked(ray_options: Any) -> dict[str, Any]:
    if ray_options is None:
        return {}
    if not isinstance(ray_options, Mapping):
        raise unfit("ray_options", "a dict", ray_options)
    for name in ray_options:
        if name not in (*_CLUSTER_OPTIONS, *_ACTOR_OPTIONS):
            raise not_a_choice("a ray_options key", name, (*_CLUSTER_OPTIONS, *_ACTOR_OPTIONS))
    given = {name: value for name, value in ray_options.items() if value is not None}
    for name, value in given.items():
        full = f"ray_options[{name!r}]"
        if name in _AMOUNTS:
            _check_amount(full, value)
        elif name in _TEXTS and not isinstance(value, str):
            raise unfit(full, "a string", value)
        elif name in _DICTS and not isinstance(value, Mapping):
            raise unfit(full, "a dict", value)
    for name, value in given.get("resources", {}).items():
        _check_amount(f"ray_options['resources'][{name!r}]", value)
    return given


def _check_amount(name: str, value: Any) -> None:
    is_number = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not is_number or not 0 <= value < math.inf:
        raise unfit(name, "a number that is not negative", value)


def _plain_labels(options: Mapping[str, Any]) -> dict[str, str]:
    """What labels a node must have, as far as that is said without Ray's operators."""
    labels = options.get("label_selector") or {}
    return {name: text for name, text in labels.items() if not str(text).startswith(("!", "in("))}


def _join(ray: Any, address: str | None, num_cpus: float) -> None:
    """Join the cluster, unless this process has done so; start one here if there is none."""
    if _is_forked_copy:
        raise ConfigError(
            "Ray was in use in the process of which this one is a fork, and cannot be used in "
            "both. Fork before anything uses Ray, or start this process with 'spawn' or "
            "'forkserver'."
        )
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", "local", here) and "://" not in str(address):
            raise ConfigError(
                f"ray_options ask for the cluster at {address!r}, but this process is in that at "
                f"{here!r}; call ray.shutdown() first, or leave the address out"
            )
        return
    address = address or os.environ.get("RAY_ADDRESS") or "local"  # Ray itself would look further
    own = _own_ray(num_cpus) if address == "local" else {}
    try:
        _require_answer(address)
        ray.init(address=address, logging_level="WARNING", **own)
    except (OSError, ValueError) as error:
        raise ConfigError(f"No Ray cluster could be joined at {address!r}: {error}") from error
    if own:
        _own_sessions.add(session())


def _require_answer(address: str) -> None:
    """Raise an OSError if nobody listens at ``host:port``: Ray would try for two minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()


def _own_ray(num_cpus: float) -> dict[str, Any]:
    """What a Ray that is started here is told."""
    return {"num_cpus": int(max(num_cpus, usable_cpus())), "include_dashboard": False}


def _shown(resources: Mapping[str, float]) -> dict[str, float]:
    """Resources without Ray's own marks of nodes."""
    hidden = ("node:", "object_store_memory", "accelerator_type:")
    return {name: value for name, value in resources.items() if not name.startswith(hidden)}


def _in_words(resources: Mapping[str, float]) -> str:
    words = []
    for name, value in sorted(resources.items()):
        is_bytes = name == "memory"
        words.append(f"{value / 2**30:.1f} GiB of memory" if is_bytes else f"{value:g} {name}")
    return ", ".join(words)
