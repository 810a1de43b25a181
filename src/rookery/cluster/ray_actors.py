"""Actors of Ray: preparing their processes, waiting for their results, and ending them."""

from __future__ import annotations

import os
import sys
import sysconfig
from collections.abc import Sequence
from typing import Any

from rookery.cluster.ray_session import require_ray
from rookery.common.version import __version__
from rookery.errors import ConfigError
from rookery.worker.start.forkserver import search_path
from rookery.worker.wait.event import keep_no_names

_MOST_CHARACTERS = 400  # of Ray's messages
_LEAVE_S = 2.0


def folders_of_modules() -> list[str]:
    """Return the folders in which this process finds modules, without installed packages."""
    installed = {os.path.realpath(path) for path in sysconfig.get_paths().values()}
    inside = tuple(path + os.sep for path in installed)
    found = [os.path.realpath(entry) for entry in search_path()]
    return [path for path in found if path not in installed and not path.startswith(inside)]


def match_caller(version: str, folders: Sequence[str]) -> None:
    """Prepare the process of an actor for objects that the caller sends.

    Args:
        version: version of the caller's rookery.
        folders: folders in which the caller finds modules. Those that exist here are added to the
            end of ``sys.path``.

    Raises:
        ConfigError: another version of rookery is installed here.
    """
    if version != __version__:
        raise ConfigError(
            f"This node has rookery {__version__}, but the caller has {version}. Install the same "
            "version on all nodes"
        )
    keep_no_names()  # Ray kills all processes of an actor, also its resource tracker
    sys.path += [f for f in folders if f not in sys.path and os.path.isdir(f)]


def this_node() -> str:
    """Return address and id of the node of the cluster that this process runs on."""
    ray = require_ray()
    node_id = ray.get_runtime_context().get_node_id()
    return f"{ray.util.get_node_ip_address()}/{node_id[:6]}"


def describe_loss(error: BaseException) -> str:
    """Return what happened to an actor in one line: Ray's first and last sentence."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if not lines:
        return f"was lost ({type(error).__name__})"
    text = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]}"
    return f"was lost: {text if len(text) < _MOST_CHARACTERS else text[:_MOST_CHARACTERS] + ' ...'}"


def end_actor(actor: Any, group: str) -> None:
    """End an actor, after it has removed its names from the system if it answers in time.

    An actor that is just starting may already have names. An actor that waits for a node does not
    answer.

    Args:
        actor: actor with a method ``leave`` that calls ``forget_all_names``.
        group: concurrency group with a free thread for that call.
    """
    wait_for_any([actor.leave.options(concurrency_group=group).remote()], _LEAVE_S)
    require_ray().kill(actor)


def wait_for_any(references: Sequence[Any], seconds: float) -> list[Any]:
    """Return the references that are ready, as soon as one is; an empty list after ``seconds``.

    An exception that a signal handler raises meanwhile is raised unchanged.
    """
    try:
        ready: list[Any] = require_ray().wait(list(references), num_returns=1, timeout=seconds)[0]
    except SystemError as error:  # Ray wraps an exception that a signal handler raises
        if error.__cause__ is None:
            raise
        raise error.__cause__ from None
    return ready
