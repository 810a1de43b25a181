"""EnvSource: the env of a run, in a form that config.json can store and `evaluate` can rebuild."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from itertools import takewhile
from typing import Any

from gymnasium.envs.registration import EnvSpec

from rookery.common.cpus import usable_cpus
from rookery.common.env_errors import in_words
from rookery.common.importing import (
    imported,
    is_installed,
    meant_ids,
    package_of,
    reference,
    register,
)
from rookery.env.recipe import find_spec, make_recipes
from rookery.env.wrappers.frame_stack import FrameStack
from rookery.env.wrappers.repeated import Once
from rookery.errors import ConfigError, MissingExtra, UnknownEnvError
from rookery.run.families import Family, Wrapper, address_of, family_of, named, source_of
from rookery.vector.base import VectorEnv
from rookery.vector.make import make_vec


@dataclass(frozen=True, slots=True)
class EnvSource:
    """Description of a run's envs, from which `make` builds the vector env.

    Attributes:
        env: gym id, EnvSpec, or callable that returns an env.
        env_kwargs: keyword arguments of every env.
        wrappers: callables ``Env -> Env``. They wrap the preprocessed env, except that leading
            wrappers listed in `Family.inside` are applied before the preprocessing.
        env_module: module to import first.
        preprocess: apply the wrappers and arguments of the env's `Family`. This has no effect on
            callables, on specs that contain wrappers, and if ``wrappers`` do the same.
        frame_stack: number of stacked observations; None takes the family's number.
        evaluates: the envs are evaluation envs, which may have other family wrappers.
        in_batch: the family's vectorized env steps all envs, instead of single envs.
    """

    env: Any
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    wrappers: Sequence[Wrapper] = ()
    env_module: str | None = None
    preprocess: bool = False
    frame_stack: int | None = None
    evaluates: bool = False
    in_batch: bool = False

    @property
    def name(self) -> str:
        """Short name of the env for titles and folders."""
        if isinstance(self.env, str):
            return self.env
        return self.env.id if isinstance(self.env, EnvSpec) else reference(self.env) or "env"

    def changed(
        self,
        env: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[Wrapper] | None = None,
    ) -> EnvSource:
        """Return a copy with the given changes. A new env starts without ``env_kwargs``."""
        kwargs = self.env_kwargs if env is None else {}
        return replace(
            self,
            env=self.env if env is None else env,
            env_kwargs=kwargs if env_kwargs is None else env_kwargs,
            wrappers=self.wrappers if wrappers is None else tuple(wrappers),
        )

    def for_evaluation(self) -> EnvSource:
        """Return the source of evaluation envs; ``self`` if they equal the training envs."""
        family = self.family()
        is_same = family is None or family.training == family.evaluation
        return self if is_same else replace(self, evaluates=True)

    def differs_from(self, other: EnvSource) -> bool:
        """Return True if env, arguments or wrappers differ."""
        names = [f.name for f in fields(self) if f.name not in ("evaluates", "in_batch")]
        return any(getattr(self, name) is not getattr(other, name) for name in names)

    def family(self) -> Family | None:
        """Return the family whose preprocessing is applied, or None."""
        if not self.preprocess:
            return None
        self._register()
        family = family_of(self.env)
        if family is None or not family.training:
            return None
        if any(source_of(wrapper).startswith(family.instead) for wrapper in self.wrappers):
            return None
        spec = _spec(self.env)
        return None if spec is not None and spec.additional_wrappers else family

    def note(self) -> str:
        """Describe the automatic preprocessing in one line; empty if there is none."""
        family = self.family()
        if family is None:
            return ""
        batch = ", by ALE's own batches (backend native)" if self.in_batch else ""
        return f"{self.name}: {family.note.format(frames=self._num_frames(family))}{batch}"

    def episode_keys(self) -> tuple[str, ...]:
        """Return the info keys of an episode's return and length; empty without preprocessing."""
        family = self.family()
        return () if family is None or family.episode_keys is None else family.episode_keys

    def make(self, num_envs: int, **options: Any) -> VectorEnv:
        """Build a vector env of ``num_envs`` envs for training or evaluation."""
        if self.in_batch:
            threads = max(usable_cpus() // (options.get("num_workers") or 1), 1)
            arguments = self.batch_arguments(threads)
            options["backend"] = "native"
        else:
            arguments = self.arguments()
        return make_vec(
            **arguments,
            num_envs=num_envs,
            autoreset_mode="same_step",
            copy=False,
            **options,
        )

    def arguments(self) -> dict[str, Any]:
        """Register the env and return its arguments for `make_vec` and `WorkerCollector`.

        Raises:
            UnknownEnvError: no such env is registered.
            ConfigError: an argument of the env is incompatible with its preprocessing.
            MissingExtra: a package that the preprocessing needs is not installed.
        """
        self._register()
        try:
            make_recipes(self.env, None, None, ())
        except UnknownEnvError as error:
            if isinstance(error.__cause__, ImportError):
                raise
            raise UnknownEnvError(f"{error} {self._how_to_register()}".rstrip()) from error
        env, family = self._env_with_entry_point(), self.family()
        frames = self._num_frames(family)
        stack = () if frames is None else (FrameStack(frames),)
        if family is None:
            wrappers = (*stack, *self.wrappers)
            return {"env": env, "env_kwargs": dict(self.env_kwargs), "wrappers": wrappers}
        self._check_fits(family)
        begins = family.inside
        inside = tuple(takewhile(lambda each: source_of(each).startswith(begins), self.wrappers))
        inner = family.evaluation if self.evaluates else family.training
        outer = (*stack, *self.wrappers[len(inside) :])
        checks = () if family.mark is None else (Once(self.name, family.mark, family.instead),)
        return {
            "env": env,
            "env_kwargs": {**family.env_kwargs, **self.env_kwargs},
            "wrappers": (*inside, *inner, *outer, *checks),
        }

    def batch_arguments(self, num_threads: int | None = None) -> dict[str, Any]:
        """Return the arguments of `make_vec` for the family's vectorized env.

        Args:
            num_threads: number of envs that step at the same time.

        Raises:
            ConfigError: the envs cannot be stepped by a vectorized env, or see `arguments`.
            UnknownEnvError: no such env is registered.
            MissingExtra: a package that the preprocessing needs is not installed.
        """
        self.arguments()  # raises the errors that concern single envs too
        if self.wrappers:
            names = ", ".join(source_of(wrapper) for wrapper in self.wrappers)
            raise ConfigError(f"wrappers of single envs do not fit around a batch ({names})")
        family, spec = self.family(), _spec(self.env)
        if family is None or family.batch is None or spec is None:
            raise ConfigError("only Atari games that a run preprocesses have a batch to train in")
        options = family.batch.options(spec, self.env_kwargs)
        frames = self._num_frames(family)
        kwargs = {**options, "frame_stack": frames, "num_threads": num_threads}
        return {"env": family.batch, "env_kwargs": kwargs}

    def _env_with_entry_point(self) -> Any:
        """Return the env, with the entry point replaced if its family defines another one."""
        family = family_of(self.env)
        spec = None if family is None else _spec(self.env)
        if family is None or spec is None or not isinstance(spec.entry_point, str):
            return self.env
        replacement = family.entry_points.get(spec.entry_point)
        return self.env if replacement is None else replace(spec, entry_point=replacement)

    def _register(self) -> None:
        """Import the module or package that registers the env."""
        if self.env_module:
            import_module(self.env_module)
        if isinstance(self.env, str):
            register(self.env)

    def _num_frames(self, family: Family | None) -> int | None:
        """Return the number of stacked observations; None without stacking."""
        if self.frame_stack is not None or family is None:
            return self.frame_stack
        return family.frame_stack

    def _check_fits(self, family: Family) -> None:
        """Raise if the env's arguments or packages do not suit the family's wrappers."""
        for name, allowed in family.allowed_kwargs.items():
            value = self.env_kwargs.get(name, allowed[0])
            if value not in allowed:
                raise ConfigError(
                    f"{self.name}: env_kwargs has {name}={in_words(value)}, but its preprocessing "
                    f"needs {' or '.join(map(repr, allowed))}; leave it out, or pass "
                    "preprocess=False (--no-preprocess)"
                )
        if family.needs is not None and not is_installed(family.needs[0]):
            raise MissingExtra(
                f"{self.name}: its preprocessing needs {family.needs[0]}: pip install "
                f"{family.needs[1]}"
            )

    def _how_to_register(self) -> str:
        """Return a hint on how to register an env with an unknown id."""
        module, _, name = str(self.env).rpartition(":")
        if module:
            return f"Module {module!r} was imported, but it has no function {name!r} either."
        if self.env_module:
            return f"{self.env_module!r} was imported and does not register it."
        package = package_of(name)
        if package is None:
            hint = "".join(f"Did you mean {each}? " for each in meant_ids(name))
            return f"{hint}On the command line, --env-module PACKAGE imports one."
        if is_installed(package.module):
            return ""
        return "After the installation, training imports it automatically."

    def to_dict(self) -> dict[str, Any]:
        """Describe the source as JSON data; objects that cannot be imported become null."""
        if isinstance(self.env, str):
            env: Any = self.env
        elif isinstance(self.env, EnvSpec):
            env = {"spec": self.env.to_json()}
        else:
            env = {"callable": reference(self.env)}
        return {
            "env": env,
            "env_kwargs": _as_json(dict(self.env_kwargs)),
            "wrappers": [address_of(wrapper) for wrapper in self.wrappers],
            "env_module": self.env_module,
            "preprocess": self.preprocess,
            "frame_stack": self.frame_stack,
        }

    @classmethod
    def from_dict(
        cls,
        config: dict[str, Any],
        env: Any = None,
        env_kwargs: Mapping[str, Any] | None = None,
        wrappers: Sequence[Wrapper] | None = None,
    ) -> EnvSource:
        """Undo `to_dict`; arguments replace the stored values.

        Raises:
            ConfigError: config.json could not hold a value, and it is not passed again.
        """
        if env is None:
            env = _read_env(config["env"])
        if env_kwargs is None:
            env_kwargs = config["env_kwargs"]
        if env_kwargs is None:
            raise ConfigError(
                "the run's env_kwargs are not JSON data, so config.json does not hold them; pass "
                "them again: rookery.evaluate(run_dir, env_kwargs=...), also with rookery.resume"
            )
        if wrappers is None:
            wrappers = [named(address, resolve(address)) for address in config["wrappers"]]
        return cls(
            env,
            env_kwargs,
            wrappers,
            config["env_module"],
            # Runs of earlier versions store neither of the two.
            config.get("preprocess", False),
            config.get("frame_stack"),
        )


def _spec(env: Any) -> EnvSpec | None:
    """Return the spec of an env or id; None if there is none."""
    if not isinstance(env, str):
        return env if isinstance(env, EnvSpec) else None
    try:
        return find_spec(env)
    except UnknownEnvError:
        return None


def _read_env(env: Any) -> Any:
    if not isinstance(env, dict):
        return env
    return EnvSpec.from_json(env["spec"]) if "spec" in env else resolve(env["callable"])


def import_module(name: str) -> Any:
    """Import a module by name.

    Raises:
        ConfigError: the module cannot be imported.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ConfigError(f"cannot import {name!r}: {error}") from error


def _as_json(value: Any) -> Any:
    """Return ``value`` after a round trip through JSON, or None if it is not JSON data."""
    try:
        return json.loads(json.dumps(value))
    except (TypeError, ValueError):
        return None


def resolve(address: str | None) -> Any:
    """Import the object that `reference` named.

    Raises:
        ConfigError: the object had no importable name, or it no longer exists.
    """
    if address is None:
        raise ConfigError(
            "the run's env or a wrapper was a lambda, a local function or a partial, which "
            "config.json cannot hold; pass them again: rookery.evaluate(run_dir, env=..., "
            "wrappers=...), also with rookery.resume"
        )
    try:
        return imported(address)
    except (ImportError, AttributeError) as error:
        raise ConfigError(
            f"the run's env or a wrapper was {address}, which cannot be imported now ({error}); "
            "pass it again: rookery.evaluate(run_dir, env=..., wrappers=...), also with "
            "rookery.resume"
        ) from error
