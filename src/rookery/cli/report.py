"""``rookery report RUN_DIR [RUN_DIR ...]``."""

from __future__ import annotations

from pathlib import Path

from rookery.cli.arguments import CommandParser, add_group_by, checked_output, print_result
from rookery.telemetry.report.page import page_of
from rookery.training.recorded import read_run
from rookery.training.run_dir import RunDirectory, whole_file
from rookery.training.run_report import report_on

_WAY_OUT = "make its folder writable, make room, or choose another --output"


def run(arguments: list[str]) -> int:
    """Write a page about runs as told and print where it lies."""
    command = _parser().parse_args(arguments)
    paths = {Path(path).resolve(): path for path in command.runs}  # each folder once
    if command.output is not None:
        output = checked_output(command.output, (".html", ".htm"))
    runs = [read_run(path) for path in paths.values()]
    if command.output is None:
        output = RunDirectory(runs[0].path).report if len(runs) == 1 else Path("report.html")
    by = [name for names in command.group_by for name in names.split(",") if name]
    report = report_on(runs, by)
    with whole_file(output, has_one_writer=False, way_out=_WAY_OUT) as page:
        page.write(page_of(report).encode())
    print_result({"output": str(output), "runs": len(runs), "groups": list(report.groups)})
    return 0


def _parser() -> CommandParser:
    parser = CommandParser(
        "rookery report",
        description="Write one HTML page about runs: curves, where the time goes, envs and "
        "workers, faults, settings, versions. It needs no other file and no network.",
        epilog="The last line printed is one JSON object.",
    )
    parser.add_argument(
        "runs", nargs="+", metavar="RUN_DIR", help="folders that rookery train wrote"
    )
    parser.add_argument(
        "--output",
        metavar="FILE",
        help="the page, .html; report.html in the folder of the run, of several in the current one",
    )
    add_group_by(parser)
    return parser
