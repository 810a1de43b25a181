"""Tables and a picture of the results: docs/speed.md, and a few rows in the README."""

from __future__ import annotations

import math
from collections.abc import Iterator

from matplotlib.axes import Axes
from matplotlib.ticker import EngFormatter

from benchmarks.cases import CASES, LIMIT, LOOP
from benchmarks.panels import draw_panels, mark_plainly
from benchmarks.peers import ABSENT, ROOT, library_of
from benchmarks.runner import RESULTS, Result, read

PAGE = ROOT / "docs" / "speed.md"
PICTURE = ROOT / "docs" / "pictures" / "speed.png"
READMES = (ROOT / "README.md", ROOT / "README.zh-CN.md")  # one for each language
_BEGIN, _END = "<!-- figures: begin -->", "<!-- figures: end -->"

_IN_PICTURE = ("cartpole-64", "halfcheetah-16", "pong-16", "waiting-32")
_BARS = (
    LOOP, "rookery", "gymnasium: SyncVectorEnv", "gymnasium: AsyncVectorEnv", "SB3: DummyVecEnv",
    "SB3: SubprocVecEnv", "TorchRL", "Tianshou", "PufferLib", "EnvPool", "native",
)  # fmt: skip
# Rows of the READMEs: case, and its title in each language.
_IN_README = {
    "cartpole-64": ("CartPole-v1, 64 envs", "CartPole-v1，64 个环境"),
    "halfcheetah-16": ("HalfCheetah-v5, 16 envs", "HalfCheetah-v5，16 个环境"),
    "pong-16": ("ALE/Pong-v5 in pixels, 16 envs", "ALE/Pong-v5（像素），16 个环境"),
    "waiting-32": (
        "an env that waits 2 ms, 32 envs in lock-step",
        "每步等待 2 ms 的环境，32 个同步执行",
    ),
    "waiting-32-async": (
        "the same, as soon as 8 of the 32 are ready",
        "同上，32 个中有 8 个完成即继续",
    ),
    "sequence-8": ("Sequence observations, 8 envs", "Sequence 观测，8 个环境"),
    "rollouts-cartpole-16": ("rollouts with a policy, 16 CartPoles", "带策略采样，16 个 CartPole"),
    "ppo-cartpole": ("PPO on CartPole-v1, 8 envs", "在 CartPole-v1 上训练 PPO，8 个环境"),
    "sac-halfcheetah-1": ("SAC on HalfCheetah-v5, 1 env", "在 HalfCheetah-v5 上训练 SAC，1 个环境"),
    "ppo-pong": ("PPO on ALE/Pong-v5, 8 envs", "在 ALE/Pong-v5 上训练 PPO，8 个环境"),
}
_HEADS = (
    ("", "for-loop", "rookery", "quickest peer in Python", "slowest peer", "native envs"),
    ("", "for 循环", "rookery", "最快的 Python 同类库", "最慢的同类库", "原生（C++/numpy）环境"),
)
_NATIVE = ("EnvPool", "native")
_LISTED_ALREADY = ("rookery", "gymnasium", "native", "SB3", "SB3 on rookery", "TorchRL")
_NOT_PEERS = (LIMIT, LOOP, "rookery", "SB3 on rookery", *_NATIVE)
_HEAD = """# Speed

`scripts/bench` writes this page from its measurements. Each figure is the median of the samples,
followed by the lowest and the highest one.

- Each sample runs in a fresh process. In each round, the contenders run in a new random order.
- Each library is measured with several of its own settings. Settings that reached less than half of
  the library's best in the first round were not measured again and show one sample. Exceptions
  are the settings that most users of a library run.
- [How other libraries are measured](peers.md) lists the settings.
- *Held out* marks cases that were not used to tune rookery.
- All samples are in `benchmarks/results/speed`.
"""
_KINDS = {
    "stepping": (
        "Stepping",
        "Random actions, drawn in advance. The *limit* is the speed of the machine without "
        "communication between processes: one plain `for env in envs: env.step(action)` loop per "
        "core (per worker, if the envs wait). EnvPool and the rows called *native* use no Python "
        "envs: their envs are written in C++ or numpy, and exist only for some games.",
    ),
    "rollouts": (
        "Rollouts",
        "The policy has two layers of 64 each for actor and critic; torch uses one thread. rookery "
        "and SB3 also compute values and advantages, TorchRL values. Tianshou and RLlib leave both "
        "to the learner. The limit is without a policy.",
    ),
    "training": (
        "Training",
        "PPO, timed from the end of the first update to the end of the last. All libraries use the "
        "same envs, steps, epochs, minibatches and network shapes, and log episode returns to "
        "TensorBoard. [Results](results.md) shows the returns that they reach.",
    ),
    "off_policy": (
        "Off-policy training",
        "Env steps per second once gradient steps run, without the first seconds, in which JAX "
        "compiles. Networks of 2 x 256 units (DQN: 2 x 64), batches of 256 (DQN: 64), and, "
        "except for DQN, a gradient step per env step. The *limit* runs only the products of the "
        "gradient steps, at the speed of `torch.mm` of 256 x 256 on all cores.",
    ),
    "starting": ("Starting", "Seconds until the first reset is done. Imports are not counted."),
}


def write() -> None:
    """Bring page, picture and README up to date with what was measured."""
    results = {name: result for name, case in CASES.items() if (result := read(RESULTS, case))}
    PAGE.write_text("\n".join(_page(results)) + "\n")
    shown = [results[name] for name in _IN_PICTURE if name in results]
    if shown:
        draw_panels(shown, _draw, PICTURE, columns=2, size=(6.0, 3.0))
    for language, path in enumerate(READMES):
        rows = "\n".join((_BEGIN, *_readme_table(results, language), _END))
        before, _, rest = path.read_text().partition(_BEGIN)
        path.write_text(before + rows + rest.partition(_END)[2])


def _page(results: dict[str, Result]) -> Iterator[str]:
    yield _HEAD
    yield f"![Steps per second of every library](pictures/{PICTURE.name})"
    for kind, (title, text) in _KINDS.items():
        own = [result for result in results.values() if result.case.kind == kind]
        if own:
            yield from ("", f"## {title}", "", text)
        for result in own:
            held_out = " (held out)" if result.case.held_out else ""
            yield from ("", f"### {result.case.title}{held_out}", "")
            yield from table_of(result)
    yield from ("", "## Not measured", "")
    yield from (f"- **{name}** {why}" for name, why in ABSENT.items())
    yield from ("", "## Conditions", "")
    machines = dict.fromkeys(_machine_of(result) for result in results.values())
    yield from (f"- {machine}" for machine in machines)
    versions = {name: number for result in results.values() for name, number in _versions(result)}
    yield f"- {', '.join(f'{name} {number}' for name, number in versions.items())}."
    loads = [result.conditions["load_average"] for result in results.values()]
    if loads:
        yield (
            f"- Load average over the minute before each case: {min(loads):g} to {max(loads):g}. "
            "It includes processes of the previous case."
        )


def _versions(result: Result) -> Iterator[tuple[str, str]]:
    yield from ((name, number) for name, number in result.conditions["versions"].items() if number)
    for contender, samples in result.samples.items():
        library = library_of(contender)
        if "version" in samples[0] and library not in _LISTED_ALREADY:
            yield library, samples[0]["version"]


def _machine_of(result: Result) -> str:
    found = result.conditions
    return (
        f"{found['cores']:g} cores ({found['processor']}), {found['system']}, kernel "
        f"{found['kernel']}, Python {found['python']}, commit {found['commit']}, "
        f"{found['date'][:10]}."
    )


def table_of(result: Result) -> Iterator[str]:
    """All contenders of a case, in Markdown, the quickest first."""
    limit = result.median(LIMIT) if result.values(LIMIT) else None
    unit = "env steps per second" if result.case.unit == "steps/s" else "seconds"
    by_share = limit is not None
    more = "of the limit" if by_share else "memory of processes" if unit == "seconds" else ""
    yield f"| contender | {unit} | least to most | samples |" + (f" {more} |" if more else "")
    yield "|---|---:|---:|---:|" + ("---:|" if more else "")
    for name in sorted(result.samples, key=result.slowness):
        values = result.values(name)
        is_ours = library_of(name) == "rookery"
        cells = [
            f"**{name}**" if is_ours else name,
            _number(result.median(name)),
            f"{_number(min(values))} to {_number(max(values))}",
            str(len(values)),
        ]
        if limit is not None:
            cells.append(f"{result.median(name) / limit:.2f}")
        elif more:
            memory = sorted(sample["children_pss_mb"] for sample in result.samples[name])
            cells.append(f"{memory[len(memory) // 2]:,.0f} MB")
        yield f"| {' | '.join(cells)} |"
    for name, why in result.failures.items():
        yield f"| {name} | failed: {why.replace('|', '/')[:160]} |" + " |" * (3 if more else 2)


def _readme_table(results: dict[str, Result], language: int) -> Iterator[str]:
    yield f"| {' | '.join(_HEADS[language])} |"
    yield "|---|---:|---:|---:|---:|---:|"
    for name, titles in _IN_README.items():
        if (result := results.get(name)) is None:
            continue
        peers = [
            name for name in result.measured_to_the_end() if library_of(name) not in _NOT_PEERS
        ]
        native = [best for library in _NATIVE if (best := result.best_of(library))]
        ours = result.best_of("rookery")
        cells = [
            _spread(result, LOOP),
            f"**{_spread(result, ours)}**",
            _named(result, min(peers, key=result.slowness, default=None)),
            _named(result, max(peers, key=result.slowness, default=None)),
            _named(result, min(native, key=result.slowness, default=None)),
        ]
        yield f"| {titles[language]} | {' | '.join(cells)} |"


def _named(result: Result, contender: str | None) -> str:
    if contender is None:
        return "–"
    library, _, variant = contender.partition(": ")
    return f"{_spread(result, contender)}<br>{variant if library == 'native' else contender}"


def _spread(result: Result, contender: str | None) -> str:
    """Median with the least and the most."""
    if contender is None or not result.values(contender):
        return "–"
    values = result.values(contender)
    return f"{_number(result.median(contender))} ({_number(min(values))}–{_number(max(values))})"


def _number(value: float) -> str:
    """Three digits that matter."""
    if value == 0:
        return "0"
    digits = 2 - math.floor(math.log10(abs(value)))
    return f"{round(value, digits):,.{max(digits, 0)}f}"


def _draw(axes: Axes, result: Result) -> None:
    """Bars of what users reach with each library, and how far their samples lie apart."""
    bars = [
        (bar, name)
        for bar in _BARS
        if (name := bar if bar in result.samples else result.best_of(bar))
    ]
    labels = [_bar_label(bar, name) for bar, name in bars][::-1]
    medians = [result.median(name) for _, name in bars][::-1]
    spread = [(min(result.values(name)), max(result.values(name))) for _, name in bars][::-1]
    errors = [
        [median - least for median, (least, _) in zip(medians, spread, strict=True)],
        [most - median for median, (_, most) in zip(medians, spread, strict=True)],
    ]
    colours = {"rookery": "#1f6f8b", "EnvPool": "#c9a66b", "native": "#c9a66b", LOOP: "#444444"}
    colour = [colours.get(bar, "#b9b9b9") for bar, _ in bars][::-1]
    axes.barh(labels, medians, color=colour, xerr=errors, error_kw={"lw": 0.8, "ecolor": "#777"})
    for place, (median, (_, most)) in enumerate(zip(medians, spread, strict=True)):
        axes.text(most, place, f"  {_number(median)}", va="center", fontsize=8)
    mark_plainly(axes, result.case.title, "env steps per second")
    axes.xaxis.set_major_formatter(EngFormatter(sep=""))
    axes.set_xlim(0, 1.25 * max(most for _, most in spread))


def _bar_label(bar: str, name: str) -> str:
    """Return the library of a contender, with the variant for other libraries."""
    if bar in ("rookery", LOOP):
        return bar
    if bar in _NATIVE:
        return f"{name.partition(': ')[2].partition(',')[0]}" if bar == "native" else bar
    return name.replace("gymnasium", "Gymnasium").partition(",")[0].replace(": ", " ")
