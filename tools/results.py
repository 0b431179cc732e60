"""CompGCN's results beside the paper's, and how the claims fare, for the README: `python tools/results.py`."""

from __future__ import annotations

from pathlib import Path

from compgcn.claims import read_claims
from compgcn.experiment import experiments, find_folder
from compgcn.pages.claims import claims_table
from compgcn.pages.markup import markdown
from compgcn.report import Board, summary

RESULTS = Path(__file__).parent.parent / "results"
HEADLINES = ("link-prediction", "node-classification", "graph-classification", "graph-classification-nested")


def fare() -> str:
    """How many of the paper's claims hold by our results."""
    table = claims_table(Board(RESULTS, experiments()), read_claims(find_folder() / "claims.toml"))
    answers = [str(row[-1]) for row in table.rows]
    counts = [sum(one.startswith(words) for one in answers) for words in ("holds", "*does not", "undecided")]
    rest = len(answers) - sum(counts)
    return (
        f"Of {len(answers)} claims of the paper, {counts[0]} hold by these results, {counts[1]} do not, {counts[2]} "
        f"are undecided, and {rest} lack runs or are exceeded: [Claims](docs/results.md#claims)."
    )


if __name__ == "__main__":
    every = summary(Board(RESULTS, experiments(HEADLINES)))
    model = every.header.index("model")
    print(markdown([every._replace(rows=[row for row in every.rows if "CompGCN" in str(row[model])]), fare()]))
