"""``rookery doctor ENV``."""

from __future__ import annotations

import importlib
import json
from dataclasses import asdict

from rookery.cli.arguments import CommandParser, parse_json
from rookery.diagnosis import examine
from rookery.env.recipe import make_recipes
from rookery.errors import UnknownEnvError


def run(arguments: list[str]) -> int:
    """Examine an env; 1 if something was found that would break a run."""
    parser = CommandParser(
        "rookery doctor",
        description="Build an env as training would and report what would break a run.",
    )
    parser.add_argument("env", help="gym id, 'package:Id' or 'package.module:function'")
    parser.add_argument("--env-kwargs", default="{}", help="arguments of the env, as JSON")
    parser.add_argument("--env-module", help="module to import first, which registers the env")
    parser.add_argument("--json", action="store_true", help="print one JSON object per line")
    command = parser.parse_args(arguments)
    kwargs = parse_json(command.env_kwargs, "--env-kwargs")
    if command.env_module:
        _import(command.env_module)
    (recipe,) = make_recipes(command.env, 1, kwargs, ())
    failed = False
    for finding in examine(recipe):
        failed = failed or finding.verdict == "fail"
        print(json.dumps(asdict(finding)) if command.json else finding, flush=True)
    return int(failed)


def _import(module: str) -> None:
    try:
        importlib.import_module(module)
    except ImportError as error:
        raise UnknownEnvError(f"Cannot import --env-module {module}: {error}") from error
