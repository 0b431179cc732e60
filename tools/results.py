"""CompGCN's results beside the paper's, and how the claims fare, for the README: `python tools/results.py`."""

from __future__ import annotations

from pathlib import Path

from reproduction.claims import read_claims
from reproduction.experiment import experiments, find_folder
from reproduction.pages import claims_table
from reproduction.tables import NOT_RUN, Board, summary

from compgcn.run.report import markdown

RESULTS = Path(__file__).parent.parent / "results"
HEADLINES = ("link-prediction", "node-classification", "graph-classification", "graph-classification-nested")


def fare() -> str:
    """How many of the paper's claims hold by our results."""
    table = claims_table(Board(RESULTS, experiments()), read_claims(find_folder() / "claims.toml"))
    answers = [str(row[-1]) for row in table.rows]
    kinds = {"hold": "holds", "do not": "*does not", "undecided": "undecided", "exceeded": "*more", "not run": NOT_RUN}
    counts = {name: sum(one.startswith(words) for one in answers) for name, words in kinds.items()}
    short = sum(one.startswith("*does not") and "short of the paper" in one for one in answers)
    rest = "".join(f"; {name}: {counts[name]}" for name in ("undecided", "exceeded", "not run") if counts[name])
    return (
        f"Of {len(answers)} claims of the paper, {counts['hold']} hold by these results and {counts['do not']} do not"
        f"{rest}. In {short} of those that do not, a CompGCN of ours falls short of the paper's figure for it, so that "
        "they are verdicts on our training too: [Claims](docs/results.md#claims)."
    )


if __name__ == "__main__":
    every = summary(Board(RESULTS, experiments(HEADLINES)))
    model = every.header.index("model")
    print(markdown([every._replace(rows=[row for row in every.rows if "CompGCN" in str(row[model])]), fare()]))
