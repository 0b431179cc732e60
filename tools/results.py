"""CompGCN's committed results beside the paper's as a Markdown table, for the README: `python tools/results.py`."""

from __future__ import annotations

from pathlib import Path

from compgcn.experiment import experiments
from compgcn.pages.markup import markdown
from compgcn.report import Board, summary

RESULTS = Path(__file__).parent.parent / "results"
HEADLINES = ("link-prediction", "node-classification", "graph-classification", "graph-classification-nested")

if __name__ == "__main__":
    every = summary(Board(RESULTS, experiments(HEADLINES)))
    model = every.header.index("model")
    print(markdown([every._replace(rows=[row for row in every.rows if "CompGCN" in str(row[model])])]))
