"""Compare the speed of two states of the code.

    python -m benchmarks.pairs BEFORE AFTER [--row NAME ...] [--pairs 7]

BEFORE and AFTER are folders with a checkout; each provides ``rookery`` and ``benchmarks``. The
speed of a shared machine can change by half within minutes, so successive runs would measure the
machine. Here one process of each state is open, and both work in turns of 50 ms. A pair is the
median of the ratios of these turns; a row has several pairs, in new processes. The result is
written to results/pairs.json.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

RESULT = Path(__file__).parent / "results" / "pairs.json"
_ROWS = {
    "cartpole-8": ("rookery: workers", "rookery: caller_steps", "rookery: serial"),
    "cartpole-64": ("rookery: workers", "rookery: caller_steps"),
    "halfcheetah-16": ("rookery: workers",),
    "pong-16": ("rookery: workers", "rookery: views"),
    "sequence-8": ("rookery: workers", "rookery: caller_steps"),
    "rollouts-cartpole-16": (
        "rookery: SyncCollector, workers",
        "rookery: SyncCollector, caller_steps",
        "rookery: WorkerCollector",
    ),
    "waiting-32": ("rookery: recv a quarter of the envs",),
}
ROWS = {f"{case} / {name}": (case, name) for case, names in _ROWS.items() for name in names}
_TURN_S = 0.05
_TURNS = 20


def main() -> None:
    """Compare, print and write."""
    from rookery.bench.conditions import conditions

    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs")
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--row", nargs="+", choices=ROWS, default=list(ROWS), metavar="ROW")
    parser.add_argument("--pairs", type=int, default=7)
    arguments = parser.parse_args()
    trees = arguments.before.resolve(), arguments.after.resolve()
    states = {"before": _commit(trees[0]), "after": _commit(trees[1])}
    known = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    is_same = all(known.get(name) == state for name, state in states.items())
    ratios = known["after_over_before"] if is_same else {}  # other rows of these very states
    for row in arguments.row:
        own = [_pair(trees, row, is_odd=bool(i % 2)) for i in range(arguments.pairs)]
        print(f"{row:50s} {statistics.median(own):.2f}  ({min(own):.2f} to {max(own):.2f})")
        ratios[row] = own
        written = {"conditions": conditions(), **states, "after_over_before": ratios}
        RESULT.write_text(json.dumps(written, indent=1) + "\n")


def _commit(tree: Path) -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.check_output(command, cwd=tree, text=True).strip()


def _pair(trees: tuple[Path, Path], row: str, is_odd: bool) -> float:
    """Return the speed of the second state relative to the first, as the median over turns."""
    servers = {tree: _server(tree, row) for tree in (trees[::-1] if is_odd else trees)}
    try:
        ratios = []
        for turn in range(_TURNS + 2):
            order = trees[::-1] if turn % 2 else trees
            rates = {tree: _turn(servers[tree]) for tree in order}
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


def _serve(name: str, contender: str) -> None:
    """Work for a while at each line of standard input, and say how fast it went."""
    from benchmarks.cases import CASES
    from benchmarks.clocks import steps_per_second

    case: Any = CASES[name]
    with importlib.import_module(f"benchmarks.{case.kind}").CONTENDERS[contender](case) as work:
        for _ in sys.stdin:
            print(steps_per_second(work, _TURN_S), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        del sys.path[0]  # this very folder; the benchmarks are those of the state
        _serve(*sys.argv[2:])
    else:
        main()
