"""What caller and worker say to each other.

A step is announced by one number in the shared block and a ring; nothing else travels. Everything
rare is a request ``(method of EnvBatch, arguments)`` through a pipe. The answer is again one number
and a ring, and only if there is something to say, a pickle through the pipe. The ring comes first,
so that a large answer never waits for a reader who still waits for the ring.

Single envs are told what to do by mail, in columns of the shared block, and a ring. Their answers
ring a bell that all workers have in common, so that the caller can wait for whoever is first.
Pickles say whose answer they are, because they may be read in another order than they were sent.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass
from typing import Any

import gymnasium as gym
from gymnasium import Space
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode

from rookery.env.arrays import BatchSpaces
from rookery.env.recipe import EnvRecipe
from rookery.env.registrations import Registrations

REQUEST = -1  # command words; any other value is a step into that buffer
MAIL = -2  # look into the mailbox

# Requests that are no methods of EnvBatch.
ADOPT_SLAB = "adopt_slab"  # go on with the slab that follows
LEND = "lend"  # map the block that follows
INSTALL = "install"  # put something beside the batch, see rookery.worker.desk
SETTLE = "settle"  # forget rings for mail that was seen before they were heard

STACK_SIGNAL = getattr(signal, "SIGUSR1", None)  # "write your Python stack"; None on Windows

EVERYBODY = -1  # whose answer a pickle is, if not that of one env

DONE = 0  # reply words, and statuses of answers to mail
ANSWER = 1
FAILURE = 2
SEEN_IN_SLAB = 3  # done, and something lies in the slab


@dataclass(frozen=True)
class Errand:
    """What a new worker is told first.

    Attributes:
        recipes: of its envs.
        first_id: index of the first of them in the vector env.
        registrations: what the caller registered with Gymnasium.
        environment: the caller's environment variables, thread caps included.
        working_directory: the caller's, None if it is gone.
    """

    recipes: list[EnvRecipe]
    first_id: int
    registrations: Registrations
    environment: dict[str, str]
    working_directory: str | None


@dataclass(frozen=True)
class Hello:
    """What a worker, or a batch in the calling process, has built.

    Attributes:
        spaces: (observation space, action space) of each env; a single pair if all are equal.
        metadata: of the first env.
        render_mode: of the first env.
        spec: of the first env.
    """

    spaces: list[tuple[Space[Any], Space[Any]]]
    metadata: dict[str, Any]
    render_mode: str | None
    spec: EnvSpec | None

    @classmethod
    def of(cls, envs: list[gym.Env[Any, Any]]) -> Hello:
        """Describe some envs."""
        first = envs[0]
        spaces = [(env.observation_space, env.action_space) for env in envs]
        if all(pair == spaces[0] for pair in spaces):
            spaces = spaces[:1]
        return cls(spaces, dict(first.metadata), first.render_mode, first.spec)


@dataclass(frozen=True)
class Assignment:
    """How a worker is to use the shared block that follows.

    Attributes:
        spaces: decide the columns.
        autoreset_mode: what happens when an episode ends.
        num_workers: how many share the block.
        index: which of them this one is.
    """

    spaces: BatchSpaces
    autoreset_mode: AutoresetMode
    num_workers: int
    index: int


class NotFinishedError(Exception):
    """The deadline passed first; what was begun goes on. Never reaches a user."""
