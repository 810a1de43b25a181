"""Write the table of figures into the README, between its two markers.

python -m benchmarks.readme_table
"""

from __future__ import annotations

from benchmarks import results
from benchmarks.runner import ROOT
from benchmarks.targets import TARGETS, Target

_README = ROOT / "README.md"
_BEGIN = "<!-- figures: begin; written by python -m benchmarks.readme_table -->"
_END = "<!-- figures: end -->"
_HEAD = "| work | compared | target | reached |\n|---|---|---:|---:|"


def make_table() -> str:
    """Render every target with what was last measured, and under which conditions."""
    rows, conditions = [], set()
    for target in TARGETS:
        case = results.read_cases(results.RESULTS, target.subject).get(target.case)
        figure = target.figure(case) if case else None
        rows.append(_row(target, figure))
        if case and figure is not None:
            conditions.add(_describe_conditions(case["conditions"]))
    measured = "\n".join(f"Measured on {text}." for text in sorted(conditions))
    return "\n".join([_HEAD, *rows]) + (f"\n\n{measured}" if measured else "")


def _row(target: Target, figure: float | None) -> str:
    cells = (target.work, target.comparison, target.bound_text, _reached(target, figure))
    return f"| {' | '.join(cells)} |"


def _reached(target: Target, figure: float | None) -> str:
    if figure is None:
        return "not measured"
    text = target.form.format(figure)
    if target.is_met(figure):
        return text
    return f"{text}, **missed**" + (f": {target.note}" if target.note else "")


def _describe_conditions(conditions: dict[str, object]) -> str:
    versions = conditions["versions"]
    assert isinstance(versions, dict)
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    date = str(conditions["date"]).split(maxsplit=1)[0]
    return (
        f"{conditions['cores']} cores ({conditions['processor']}), {conditions['system']}, "
        f"Python {conditions['python']}, {named}, on {date}"
    )


def main() -> None:
    """Replace what stands between the markers."""
    text = _README.read_text()
    before, rest = text.split(_BEGIN, 1)
    _, after = rest.split(_END, 1)
    _README.write_text(f"{before}{_BEGIN}\n{make_table()}\n{_END}{after}")


if __name__ == "__main__":
    main()
