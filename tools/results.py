"""The committed results beside the paper's as a Markdown table, for the README: `python tools/results.py`."""

from __future__ import annotations

from pathlib import Path

from compgcn.experiment import experiments
from compgcn.pages.markup import markdown
from compgcn.report import Board, summary

RESULTS = Path(__file__).parent.parent / "results"

if __name__ == "__main__":
    print(markdown([summary(Board(RESULTS, experiments()))]))
