"""From an exception inside an env to an EnvFailed that says which env, doing what."""

from __future__ import annotations

from typing import Any

from rookery.errors import EnvFailed


def env_failed(
    cause: BaseException,
    *,
    env_name: str,
    env_id: int,
    command: str,
    seed: int | None = None,
    steps_since_reset: int | None = None,
    last_action: Any = None,
) -> EnvFailed:
    """An EnvFailed that is an instance of the cause's type too; the cause is its ``__cause__``."""
    context = [f"seed {seed}" if seed is not None else "unseeded"]
    if steps_since_reset is not None:
        context.append(f"{steps_since_reset} steps after its reset")
    if command == "step":
        context.append(f"action {last_action!r:.100}")
    message = (
        f"Env {env_id} ({env_name}) raised {type(cause).__name__} in {command} "
        f"({', '.join(context)}): {cause}"
    )
    error = _of_type(_combined(type(cause)), message)
    error.env_name = env_name
    error.env_ids = (env_id,)
    error.command = command
    error.seed = seed
    error.steps_since_reset = steps_since_reset
    error.last_action = last_action
    error.__cause__ = cause
    return error


def context_of(error: EnvFailed) -> dict[str, Any]:
    """The arguments with which :func:`env_failed` made ``error``, but the cause."""
    return {
        "env_name": error.env_name,
        "env_id": error.env_ids[0],
        "command": error.command,
        "seed": error.seed,
        "steps_since_reset": error.steps_since_reset,
        "last_action": error.last_action,
    }


def _combined(cause_type: type[BaseException]) -> type[EnvFailed]:
    if not issubclass(cause_type, Exception) or issubclass(cause_type, EnvFailed):
        return EnvFailed
    try:
        return type("EnvFailed", (EnvFailed, cause_type), {"__module__": EnvFailed.__module__})
    except TypeError:  # layouts that cannot be combined
        return EnvFailed


def _of_type(error_type: type[EnvFailed], message: str) -> EnvFailed:
    try:
        error = error_type.__new__(error_type, message)
        Exception.__init__(error, message)
        str(error)
    except Exception:  # the cause's type wants other arguments than a message
        error = EnvFailed.__new__(EnvFailed, message)
        Exception.__init__(error, message)
    return error
