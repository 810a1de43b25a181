"""Cluster: a Ray cluster that this process has joined, and the placing of actors on its nodes.

`Waiting` watches an actor that waits for free resources.
"""

from __future__ import annotations

import math
import numbers
import time
import warnings
from collections.abc import Mapping
from typing import Any

from rookery.cluster.ray_actors import folders_of_modules
from rookery.cluster.ray_session import join, require_ray, session, was_started_here
from rookery.common.arguments import not_a_choice, unfit
from rookery.common.cpus import usable_cpus
from rookery.common.version import __version__
from rookery.errors import ConfigError, WorkerError

# Keys of `ray_options`: the address of the cluster, and Ray's options for each actor.
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
_SHARE_AFTER_S = 10.0  # waiting time after which an actor shares the CPUs of other actors
_WARN_AFTER_S = 10.0  # waiting time before the first warning
_WARN_AGAIN_S = 60.0


class Cluster:
    """A Ray cluster that this process has joined, and the options of our actors there.

    Args:
        ray_options: ``address`` of a cluster, and Ray's options for each actor. ``"auto"`` finds a
            cluster on this machine, and ``"local"`` starts Ray here. None uses ``RAY_ADDRESS``, or
            ``"local"``. The options for actors are ``num_cpus`` (default 1), ``num_gpus``,
            ``resources``, ``memory``, ``runtime_env``, ``scheduling_strategy`` (default
            ``"SPREAD"``), ``label_selector`` and ``accelerator_type``.
        num_workers: number of workers. A Ray that is started here has CPUs for them.

    Attributes:
        options: Ray's options for each actor.
        num_cpus: CPUs that one worker needs.
        is_own: True if this process started Ray, so that no other program uses its CPUs.

    Raises:
        MissingExtra: Ray is not installed.
        ConfigError: an option does not exist, or the cluster cannot be joined.
    """

    def __init__(self, ray_options: Mapping[str, Any] | None, num_workers: int | None) -> None:
        given = _checked(ray_options)
        self._ray = require_ray()
        address = given.pop("address", None)
        self.options: dict[str, Any] = {"num_cpus": 1, "scheduling_strategy": "SPREAD", **given}
        self.num_cpus = float(self.options["num_cpus"])
        join(self._ray, address, (num_workers or 0) * self.num_cpus)
        self._session = session()
        self.is_own = was_started_here()

    @property
    def is_joined(self) -> bool:
        """True if this process is still in the session of Ray in which this object was made."""
        return session() == self._session

    def require_session(self) -> None:
        """Raise a WorkerError if this process has left the cluster."""
        if not self.is_joined:
            raise WorkerError(
                "Ray was shut down, and all workers with it. Create a new vector env or collector",
                command="make",
            )

    def nodes(self) -> list[dict[str, Any]]:
        """Return the nodes that are alive, as Ray describes them."""
        return [node for node in self._ray.nodes() if node["Alive"]]

    def capacity(self) -> int:
        """Return how many workers fit on all nodes when these are otherwise idle, at least 1."""
        return max(sum(map(self._room, self.nodes())), 1)

    def workers_per_node(self) -> int:
        """Return how many workers fit on the smallest node that has room for any, at least 1.

        The nodes are assumed to be otherwise idle.
        """
        rooms = map(self._room, self.nodes())
        return min([room for room in rooms if room > 0], default=usable_cpus())

    def _room(self, node: Mapping[str, Any]) -> int:
        """Return how many workers fit on a node when it is otherwise idle."""
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
        resources = [_amounts_in_words(_without_marks(node["Resources"])) for node in nodes]
        have = "; ".join(resources) or "no node"
        raise ConfigError(
            f"No node of the Ray cluster has the resources of a worker ({_amounts_in_words(needs)}"
            f"{f', labels {labels}' if labels else ''}): {have}. "
            "Change ray_options, or add such a node to the cluster."
        )

    def lacks_free_cpus(self, num_cpus: float) -> bool:
        """Return True if too few CPUs are free now for an actor.

        Such an actor has to share the CPUs of other actors. Other resources cannot be shared.
        """
        return num_cpus > self.free().get("CPU", 0.0)

    def num_cpus_of_all(self) -> float:
        """Return the CPUs of all nodes, used or not.

        Unlike the free CPUs, this number is known without delay.
        """
        return float(sum(node["Resources"].get("CPU", 0.0) for node in self.nodes()))

    def create_actor(
        self, kind: type, groups: Mapping[str, int], options: Mapping[str, Any]
    ) -> Any:
        """Create an actor, which Ray starts on some node.

        Args:
            kind: class of the actor. It is called with our version and :func:`folders_of_modules`.
            groups: number of threads by concurrency group, beside the main thread.
            options: Ray's options for the actor.

        Raises:
            ConfigError: Ray does not accept the options.
        """
        self.require_session()
        actor = self._ray.remote(concurrency_groups=dict(groups), max_restarts=0)(kind)
        try:
            return actor.options(**options).remote(__version__, folders_of_modules())
        except (TypeError, ValueError) as error:
            raise ConfigError(f"Ray does not accept these ray_options: {error}") from error

    def waiting(self, what: str, options: Mapping[str, Any]) -> Waiting:
        """Return an object that warns while the actor ``what`` waits for a node."""
        return Waiting(self, self._needs(options), what)

    def free(self) -> dict[str, float]:
        """Return the free resources of all nodes together."""
        return dict(self._ray.available_resources())

    @staticmethod
    def _needs(options: Mapping[str, Any]) -> dict[str, float]:
        needs = {
            "CPU": options.get("num_cpus", 0),
            "GPU": options.get("num_gpus", 0),
            "memory": options.get("memory", 0),
            **options.get("resources", {}),
        }
        if options.get("accelerator_type"):
            needs[f"accelerator_type:{options['accelerator_type']}"] = 0.001  # as in Ray itself
        return {name: float(need) for name, need in needs.items() if need}


class Waiting:
    """Watches an actor while it waits for a node.

    Args:
        cluster: cluster of the actor.
        needs: resources that the actor needs.
        what: name of the actor in warnings.
    """

    def __init__(self, cluster: Cluster, needs: Mapping[str, float], what: str) -> None:
        self._cluster, self._needs, self._what = cluster, needs, what
        self._began = time.perf_counter()
        self._warn_at = self._began + _WARN_AFTER_S
        self._share_at = self._began + _SHARE_AFTER_S

    def should_share_cpus(self) -> bool:
        """Return True if the actor should share CPUs of other actors instead of waiting longer.

        A node with free CPUs may never come.
        """
        now, num_cpus = time.perf_counter(), self._needs.get("CPU", 0.0)
        if not num_cpus or now < self._share_at:
            return False
        self._share_at = now + _SHARE_AFTER_S  # the node may only be slow
        return self._cluster.lacks_free_cpus(num_cpus)

    def look(self) -> None:
        """Warn that the actor is still waiting, after 10 s and then once a minute."""
        now = time.perf_counter()
        if now < self._warn_at or not self._cluster.is_joined:
            return
        self._warn_at = now + _WARN_AGAIN_S
        free = _amounts_in_words(_without_marks(self._cluster.free())) or "nothing"
        needs = _amounts_in_words(self._needs) or "no CPU, but a node that answers"
        warnings.warn(
            f"{self._what} has waited {now - self._began:.0f} s for the Ray cluster to start it. "
            f"It needs {needs}; free on all nodes together: {free}",
            RuntimeWarning,
            stacklevel=2,
        )


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
        raise unfit(name, "a number >= 0", value)


def _plain_labels(options: Mapping[str, Any]) -> dict[str, str]:
    """Return the labels that a node must have, without those that use Ray's operators."""
    labels = options.get("label_selector", {})
    return {name: text for name, text in labels.items() if not str(text).startswith(("!", "in("))}


def _without_marks(resources: Mapping[str, float]) -> dict[str, float]:
    """Return resources without those with which Ray itself marks nodes."""
    hidden = ("node:", "object_store_memory", "accelerator_type:")
    return {name: value for name, value in resources.items() if not name.startswith(hidden)}


def _amounts_in_words(resources: Mapping[str, float]) -> str:
    words = []
    for name, value in sorted(resources.items()):
        is_bytes = name == "memory"
        words.append(f"{value / 2**30:.1f} GiB of memory" if is_bytes else f"{value:g} {name}")
    return ", ".join(words)
