"""The best systems on two data sets, for the README: `python tools/choice.py`."""

from __future__ import annotations

from pathlib import Path

from reproduction.experiment import experiments
from reproduction.tables import MISSING, Board, Table, costs, shown, title

from compgcn.run.report import markdown

RESULTS = Path(__file__).parent.parent / "results"
DATA = ("FB15k-237", "WN18RR")
MOST = 6


def choice() -> Table:
    """Those with the highest validation MRR on the first data set: test MRR, and the seconds of training, of both."""
    board = Board(RESULTS, experiments())
    found: dict[str, dict[str, tuple[float, str]]] = {}
    for experiment in (board.experiments[name] for name in ("systems", "link-prediction")):
        for row in experiment.rows:
            ours, valid = (board.real(experiment, row, "mrr", split) for split in ("test", "valid"))
            if ours is not None and valid is not None and row.group in DATA:
                seconds = costs(board.results(experiment, row))[2]
                found.setdefault(row.label, {})[row.group] = (valid.mean, f"{shown(ours, 'mrr')}, {seconds}")
    ranked = sorted((one for one in found.items() if DATA[0] in one[1]), key=lambda one: -one[1][DATA[0]][0])
    lines = [[label, *(by.get(group, (0.0, MISSING))[1] for group in DATA)] for label, by in ranked[:MOST]]
    return Table("", ("model", *(f"{group}: {title('mrr')}, seconds" for group in DATA)), lines)


if __name__ == "__main__":
    print(markdown([choice()]))
