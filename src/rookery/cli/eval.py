"""``rookery eval RUN_DIR``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from rookery.cli.arguments import parse, print_result

try:
    from tyro.conf import Positional, arg
except ImportError as error:
    from rookery.errors import MissingExtra

    raise MissingExtra("this command needs tyro: pip install 'rookery[train]'") from error


@dataclass(frozen=True)
class EvalCommand:
    """Evaluate the checkpoint of a run. The last line printed is a JSON object.

    Attributes:
        run_dir: Folder of the run, or a checkpoint in it, such as best.pt.
        episodes: Number of complete episodes to play.
        seed: Root of the envs' seeds; default: the seed of the run.
        num_envs: Number of envs that run in parallel; default: the number of the run.
        deterministic: Take the most probable action instead of a sample.
    """

    run_dir: Positional[Annotated[str, arg(metavar="RUN_DIR")]]
    episodes: int = 20
    seed: int | None = None
    num_envs: int | None = None
    deterministic: bool = True


def run(arguments: list[str]) -> int:
    """Evaluate a checkpoint and print the result."""
    command = parse(EvalCommand, arguments, "rookery eval")
    from rookery.run.loop import evaluate

    result = evaluate(
        command.run_dir,
        command.episodes,
        seed=command.seed,
        num_envs=command.num_envs,
        deterministic=command.deterministic,
    )
    print_result(result.to_dict())
    return 0
