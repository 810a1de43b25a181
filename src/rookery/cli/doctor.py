"""``rookery doctor ENV``."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict

import gymnasium as gym

from rookery.cli.arguments import CommandParser, parse_json
from rookery.common.arguments import check_positive, near_names
from rookery.common.importing import register
from rookery.env.recipe import make_recipes
from rookery.errors import UnknownEnvError
from rookery.run.env_source import import_module
from rookery.testing.env_check import DEADLINE_S, examine_all


def run(arguments: list[str]) -> int:
    """Check an env; return 1 if a finding would break a run."""
    parser = CommandParser(
        "rookery doctor",
        description="Build an env as training would, and report problems that would break a run.",
    )
    parser.add_argument("env", help="gym id, 'package:Id' or 'package.module:function'")
    parser.add_argument("--env-kwargs", default="{}", help="arguments of the env, as JSON")
    parser.add_argument("--env-module", help="module to import first; it registers the env")
    parser.add_argument(
        "--deadline",
        type=float,
        default=DEADLINE_S,
        help="longest time in seconds of the constructor, a reset or a step",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    command = parser.parse_args(arguments)
    kwargs = parse_json(command.env_kwargs, "--env-kwargs")
    if command.env_module:
        import_module(command.env_module)
    check_positive("--deadline", command.deadline)
    register(command.env)
    _require_attribute(command.env)
    (recipe,) = make_recipes(command.env, 1, kwargs, ())
    failed = False
    for finding in examine_all(recipe, command.deadline):
        failed = failed or finding.verdict == "fail"
        print(json.dumps(asdict(finding)) if command.json else finding, flush=True)
    return int(failed)


def _require_attribute(env: str) -> None:
    """Raise if ``module:name`` is neither an attribute of the module nor an env id."""
    module, _, name = env.rpartition(":")
    if not module or name in gym.registry:
        return
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise UnknownEnvError(f"Cannot import the module that {env!r} names: {error}") from error
    if hasattr(found, name) or name in gym.registry:  # the import may register the id
        return
    known = [n for n in vars(found) if not n.startswith("_")] + list(gym.registry)
    near = near_names(name, known, 3)
    hint = f" Nearest: {', '.join(near)}." if near else ""
    raise UnknownEnvError(
        f"Module {module!r} has no attribute {name!r}, and no env is registered under that "
        f"name.{hint}"
    )
