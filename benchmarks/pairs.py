"""Two states of the code side by side: before against after, on the rows of stepping and rollouts.

    python -m benchmarks.pairs BEFORE AFTER [--row NAME ...] [--pairs 7]

Both are folders with a checkout, of which each has its own ``rookery`` and its own ``benchmarks``.
The clock of a machine that others share changes by half within minutes, so whole runs one after the
other tell of the clock: here a process of each state is open at once, and they work by turns, for
50 ms each. A pair is the median of the ratios of such turns; a row has several pairs of fresh
processes. Written to results/pairs.json.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.conditions import read_conditions

RESULT = Path(__file__).parent / "results" / "pairs.json"
_STEPPING = {
    "cartpole-8": ("rookery workers", "rookery caller_steps", "rookery serial"),
    "cartpole-64": ("rookery workers", "rookery caller_steps"),
    "image-16": ("rookery workers", "rookery views"),
    "halfcheetah-16": ("rookery workers",),
    "pong-16": ("rookery workers",),
    "sequence-8": ("rookery workers", "rookery caller_steps"),
    "graph-8": ("rookery caller_steps",),
}
_ROLLOUTS = {
    "rollouts-16": ("rookery workers", "rookery caller_steps", "rookery WorkerCollector"),
}
_PARTIAL = {"uneven-32": ("rookery recv",)}
ROWS = {
    f"{case} / {contender}": (subject, case, contender)
    for subject, cases in (
        ("stepping", _STEPPING),
        ("rollouts", _ROLLOUTS),
        ("partial", _PARTIAL),
    )
    for case, contenders in cases.items()
    for contender in contenders
}
_TURN_S = 0.05
_TURNS = 20


def main() -> None:
    """Compare, print and write."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--row", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    trees = arguments.before.resolve(), arguments.after.resolve()
    written: dict[str, Any] = {
        "conditions": read_conditions(),
        "before": _commit(trees[0]),
        "after": _commit(trees[1]),
        "after_over_before": {},
    }
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    if [known.get(state) for state in ("before", "after")] == [written["before"], written["after"]]:
        written["after_over_before"] = known["after_over_before"]  # other rows of these very states
    for row in arguments.row:
        ratios = [_pair(trees, row, is_odd=bool(i % 2)) for i in range(arguments.pairs)]
        written["after_over_before"][row] = ratios
        median = statistics.median(ratios)
        print(f"{row:40s} {median:.2f}  ({min(ratios):.2f} to {max(ratios):.2f})", flush=True)
        RESULT.write_text(json.dumps(written, indent=1) + "\n")


def _commit(tree: Path) -> str:
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=tree,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def _pair(trees: tuple[Path, Path], row: str, is_odd: bool) -> float:
    """How many times as fast the second state is, by the median of turns."""
    servers = {tree: _server(tree, row) for tree in (trees[::-1] if is_odd else trees)}
    try:
        ratios = []
        for turn in range(_TURNS + 2):
            rates = {}
            for tree in trees[::-1] if turn % 2 else trees:
                rates[tree] = _turn(servers[tree])
            if turn > 1:  # the first ones warm up
                ratios.append(rates[trees[1]] / rates[trees[0]])
    finally:
        for server in servers.values():
            assert server.stdin is not None
            server.stdin.close()
            server.wait()
    return round(statistics.median(ratios), 3)


def _server(tree: Path, row: str) -> subprocess.Popen[str]:
    """Start a process of one state, ready for its turns."""
    path = os.pathsep.join([str(tree / "src"), str(tree)])
    server = subprocess.Popen(
        [sys.executable, __file__, "--serve", *ROWS[row]],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    _turn(server)
    return server


def _turn(server: subprocess.Popen[str]) -> float:
    """Env steps per second of one turn."""
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    return float(server.stdout.readline())


# ---------------------------------------------------------------- in the processes


def _serve(subject: str, case: str, contender: str) -> None:
    """Work for a while at each line of standard input, and say how fast it went."""
    with _opened(subject, case, contender) as work:
        for _ in sys.stdin:
            done, started = 0, time.perf_counter()
            while (passed_s := time.perf_counter() - started) < _TURN_S:
                done += work()
            print(done / passed_s, flush=True)


@contextmanager
def _opened(subject: str, name: str, contender: str) -> Iterator[Callable[[], int]]:
    """What does some work and returns how many env steps it was.

    It calls nothing of ``benchmarks`` that older states do not have.
    """
    from benchmarks import contenders, environments

    module = importlib.import_module(f"benchmarks.{subject}")
    (case,) = [case for case in module.CASES if case.name == name]
    if subject == "rollouts":
        with module.COLLECTORS[contender](case) as collect:
            yield collect
    elif subject == "stepping":
        actions = environments.draw_actions(case.env, case.num_envs)
        with contenders.STEPPERS[contender](case) as stepper:
            batches = itertools.cycle([stepper.encode(batch) for batch in actions])

            def step() -> int:
                stepper.step(next(batches))
                return int(case.num_envs)

            yield step
    else:
        import rookery

        maker = environments.MAKERS[case.env]
        with rookery.make_vec(
            maker, case.num_envs, backend="process", num_workers=case.num_workers
        ) as venv:
            venv.async_reset(seed=0)
            yield module._exchanger(venv, case)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        del sys.path[0]  # this very folder; the benchmarks are those of the state
        _serve(*sys.argv[2:])
    else:
        main()
