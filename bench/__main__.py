"""`python -m bench`: choose, run, print."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from bench import append, context, deletion, generate, open, peers, postgres, protocols, read, server, size, whole
from bench.measure import FULL, QUICK, Bench, Result, Sizes, Suite, as_json, show

RESULTS = Path(__file__).parent / "results"
SUITES: dict[str, Suite] = {
    "append": append.run,
    "read": read.run,
    "open": open.run,
    "size": size.run,
    "peers": peers.run,
    "whole": whole.run,
    "context": context.run,
    "postgres": postgres.run,
    "generate": generate.run,
    "server": server.run,
    "protocols": protocols.run,
    "deletion": deletion.run,
}


async def measure(names: Sequence[str], sizes: Sizes, folder: Path, console: Console) -> list[Result]:
    results: list[Result] = []
    for name in names:
        console.print(f"[dim]{name} …[/]")
        with TemporaryDirectory(dir=folder, prefix=f"{name}-") as own:
            results += await SUITES[name](Bench(sizes, Path(own)))
    return results


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Speed and size, as ratios to a baseline.")
    parser.add_argument("--only", default=",".join(SUITES), help=f"some of: {','.join(SUITES)}")
    parser.add_argument("--quick", action="store_true", help="small sizes, about a minute")
    parser.add_argument(
        "--on", type=Path, default=RESULTS, metavar="FOLDER", help="measure the disk under this folder (default: here)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON and no table")
    chosen = parser.parse_args()
    chosen.suites = [name.strip() for name in chosen.only.split(",")]
    if not chosen.on.is_dir() and chosen.on != RESULTS:
        parser.error(f"--on: {chosen.on} is not a folder")
    unknown = set(chosen.suites) - SUITES.keys()
    if unknown:
        parser.error(f"no suite {', '.join(sorted(unknown))}; there are {', '.join(SUITES)}")
    return chosen


def main() -> None:
    if sys.argv[1:2] == ["recall"]:  # the quality bench has data and options of its own
        from bench import recall

        recall.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["spending"]:  # a table of its own, without a baseline
        from bench import spending

        spending.main(sys.argv[2:])
        return
    if sys.argv[1:2] == ["languages"]:  # the same
        from bench import languages

        languages.main(sys.argv[2:])
        return
    chosen = arguments()
    RESULTS.mkdir(exist_ok=True)
    # The files to measure are made beside the results: /tmp is often memory, where an fsync costs nothing.
    results = asyncio.run(measure(chosen.suites, QUICK if chosen.quick else FULL, chosen.on, Console(stderr=True)))
    text = as_json(results)
    file = RESULTS / f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}.json"
    file.write_text(text + "\n")
    if chosen.json:
        print(text)
    else:
        console = Console()
        show(results, console)
        console.print(f"written to {file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file}")


if __name__ == "__main__":
    main()
