"""``rookery report RUN_DIR [RUN_DIR ...]``."""

from __future__ import annotations

from pathlib import Path

from rookery.cli.arguments import OUTPUT_WAY_OUT, CommandParser, checked_output, print_result
from rookery.cli.runs import add_runs, names_in, read_runs
from rookery.report.page.content import report_on
from rookery.report.page.html import page_of
from rookery.run.checkpoint.run_dir import RunDirectory, whole_file


def run(arguments: list[str]) -> int:
    """Write a report about runs and print its path."""
    command = _parser().parse_args(arguments)
    if command.output is not None:
        output = checked_output(command.output, (".html", ".htm"))
    runs = read_runs(command.runs)
    if command.output is None:
        output = RunDirectory(runs[0].path).report if len(runs) == 1 else Path("report.html")
    report = report_on(runs, names_in(command.group_by))
    with whole_file(output, has_one_writer=False, way_out=OUTPUT_WAY_OUT) as page:
        page.write(page_of(report).encode())
    print_result({"output": str(output), "runs": len(runs), "groups": list(report.groups)})
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "rookery report",
        description="Write an HTML report about runs: curves, time, envs and workers, faults, "
        "settings, versions. The page needs no other file and no network.",
        epilog="The last line printed is one JSON object.",
    )
    add_runs(parser)
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="file of the report, .html (report.html in the folder of the run; for several runs, "
        "in the current folder)",
    )
    return parser
