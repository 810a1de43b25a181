"""The measured libraries, and the virtual environments of those that need a separate one.

They come from their released packages. Who agrees with what rookery needs is installed beside it,
by the extra ``bench``; the others each have a virtual environment under ``.benchmarks/peers``,
which is made when it is first needed. CleanRL is single files and no package: the variable
``CLEANRL`` names a folder with ``ppo.py``, ``ppo_continuous_action.py`` and ``ppo_atari.py``.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_PEERS = ROOT / ".benchmarks" / "peers"

# The distribution with the version, by library.
DISTRIBUTIONS = {
    "rookery": "rookery",
    "gymnasium": "gymnasium",
    "native": "gymnasium",
    "SB3": "stable-baselines3",
    "SB3 on rookery": "stable-baselines3",
    "SBX": "sbx-rl",
    "TorchRL": "torchrl",
    "Tianshou": "tianshou",
    "EnvPool": "envpool",
    "PufferLib": "pufferlib",
    "PufferLib 3": "pufferlib-core",
    "RLlib": "ray",
    "Sample Factory": "sample-factory",
}
_OWN_ENVIRONMENT = {
    "EnvPool": ("envpool==1.2.5", "ale-py", "gymnasium[mujoco]", "opencv-python-headless"),
    "SBX": (
        "sbx-rl==0.28.0", "jax==0.10.2", "torch", "ale-py", "gymnasium[box2d,mujoco]",
        "opencv-python-headless", "tensorboard", "tqdm", "rich",
    ),
    "Tianshou": (
        "tianshou==2.0.1", "torch", "ale-py", "gymnasium[box2d,mujoco]", "opencv-python-headless",
    ),
    "PufferLib": ("pufferlib==1.0.1", "filelock", "rich"),
    "PufferLib 3": ("pufferlib-core==3.0.23", "gymnasium"),
    "RLlib": ("ray[rllib]==2.60.0", "torch"),
    "Sample Factory": ("sample-factory==2.1.1", "torch"),
    "CleanRL": (
        "ale-py", "gymnasium[box2d,mujoco]", "opencv-python-headless", "stable-baselines3",
        "tensorboard", "torch", "tyro",
    ),
}  # fmt: skip
_OTHER_GYMNASIUM = ("PufferLib", "RLlib", "Sample Factory")
_OTHER_TORCH = ("PufferLib 3",)
ABSENT = {
    "PufferLib 3's own package": "downloads parts of its source while pip builds it, which fails "
    "on this machine. `pufferlib-core`, with the same code for processes, is measured instead, and "
    "so is version 1, in cases with an env that Gymnasium 0.29, which it needs, also has.",
}


class NotInstalled(Exception):
    """A library could not be installed."""


def library_of(contender: str) -> str:
    """The library of a contender."""
    return contender.partition(": ")[0]


def interpreter_for(contender: str) -> str:
    """The Python that has the contender's library.

    Raises:
        NotInstalled: it cannot be.
    """
    library = library_of(contender)
    if library not in _OWN_ENVIRONMENT:
        return sys.executable
    folder = _PEERS / library.replace(" ", "-").lower()
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    done = folder / "installed"
    wanted = "\n".join(_OWN_ENVIRONMENT[library])
    if not done.exists() or done.read_text() != wanted:
        print(f"installing {library} into {folder}", file=sys.stderr, flush=True)
        venv.create(folder, clear=True, with_pip=True)
        pinned = folder / "constraints.txt"
        pinned.write_text("\n".join(_as_here(library)))
        installed = subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
             "-c", pinned, "psutil", *_OWN_ENVIRONMENT[library]],
            check=False,
        )  # fmt: skip
        if installed.returncode:
            raise NotInstalled(f"pip cannot install {' '.join(_OWN_ENVIRONMENT[library])}")
        done.write_text(wanted)
    return str(python)


def _as_here(library: str) -> list[str]:
    """Return the versions of the packages that run envs and networks, equal for all libraries."""
    names = [] if library in _OTHER_TORCH else ["torch"]
    if library not in _OTHER_GYMNASIUM:
        names += ["gymnasium", "mujoco", "ale-py", "box2d", "opencv-python-headless"]
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    return [line for line in lines if line.partition("==")[0] in names]
