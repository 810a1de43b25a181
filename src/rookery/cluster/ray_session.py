"""The session of Ray that this process has joined or started."""

from __future__ import annotations

import os
import socket
import sys
from typing import Any

from rookery.common.cpus import usable_cpus
from rookery.errors import ConfigError, MissingExtra

_ANSWER_S = 10.0


def require_ray() -> Any:
    """Return the module ``ray``.

    Raises:
        MissingExtra: Ray is not installed.
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
    """Return an id of the session of Ray that this process is in; empty after ``ray.shutdown()``.

    Check it before calling the actors of a session, because Ray would silently start a new session.
    """
    ray = require_ray()
    if not ray.is_initialized():
        return ""
    context = ray.get_runtime_context()  # the job id alone is not unique: it restarts at 1
    return f"{context.get_node_id()}/{context.get_job_id()}"


def join(ray: Any, address: str | None, num_cpus: float) -> None:
    """Join a cluster, or start Ray here if there is none.

    Does nothing if this process has joined a cluster before.

    Args:
        ray: the module.
        address: see `rookery.cluster.ray_cluster.Cluster`.
        num_cpus: CPUs of a Ray that is started here, at least the usable CPUs of this machine.

    Raises:
        ConfigError: the cluster cannot be joined from this process.
    """
    if _is_forked_copy:
        raise ConfigError(
            "Ray cannot be used in this process, because the process was forked from one that uses "
            "Ray. Fork before anything uses Ray, or start this process with 'spawn' or "
            "'forkserver'."
        )
    if ray.is_initialized():
        here = ray.get_runtime_context().gcs_address
        if address not in (None, "auto", "local", here) and "://" not in str(address):
            raise ConfigError(
                f"ray_options name the cluster at {address!r}, but this process has joined the one "
                f"at {here!r}. Call ray.shutdown() first, or leave the address out"
            )
        return
    # Without an address, Ray itself would search for a cluster.
    address = address or os.environ.get("RAY_ADDRESS") or "local"
    started: dict[str, Any] = {}
    if address == "local":
        started = {"num_cpus": int(max(num_cpus, usable_cpus())), "include_dashboard": False}
    try:
        _require_answer(address)
        ray.init(address=address, logging_level="WARNING", **started)
    except (OSError, ValueError) as error:
        raise ConfigError(f"Could not join a Ray cluster at {address!r}: {error}") from error
    if started:
        _own_sessions.add(session())


def _require_answer(address: str) -> None:
    """Raise an OSError if no process listens at ``host:port``. Ray would try for two minutes."""
    host, _, port = address.rpartition(":")
    if host and "/" not in host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), _ANSWER_S).close()


def was_started_here() -> bool:
    """Return True if this process started the Ray of its session, so that it is its only user."""
    return session() in _own_sessions
