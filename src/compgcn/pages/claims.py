"""The table of the paper's claims: whether its own figures say so, and whether ours do."""

from __future__ import annotations

from collections.abc import Sequence

from compgcn.claims import Claim, Reached, judge
from compgcn.experiment import at_home
from compgcn.pages.paper import placed
from compgcn.report import NOT_RUN, Board, verdict, without
from compgcn.tables import Table

SHORT = (
    "Where a row of CompGCN falls short of the paper's figure for it, that is said too: a verdict is then one on our "
    "training of it as much as on the claim."
)


def claims_table(board: Board, claims: Sequence[Claim]) -> Table:
    """What the paper claims, whether its own figures say so, and whether ours do."""

    def paper(experiment: str, row: str, metric: str) -> Reached | None:
        found = board.experiments[experiment].row(row).paper.get(metric)
        return None if found is None else Reached(found, 0.0)

    def ours(experiment: str, row: str, metric: str) -> Reached | None:
        made = board.experiments[experiment]
        line = made.row(row)
        if at_home(made, line)[1].settings is None:  # quoted
            return Reached(line.paper[metric]) if metric in line.paper else None
        found = board.real(made, line, metric)
        valid = board.real(made, line, made.metrics[0].rpartition("/")[2], "valid")
        if found is None:
            return None
        return Reached(found.mean, found.error if found.seeds > 1 else None, None if valid is None else valid.mean)

    lines = []
    for claim in claims:
        low = ", ".join(_short(board, claim))
        judged = judge(claim, ours, _lacking(board, claim)) + (f"; short of the paper's figure: {low}" if low else "")
        lines.append([claim.text, placed(claim.source), judge(claim, paper, "no figures given"), judged])
    return Table("Claims", ("the paper says", "where", "its own figures", "ours"), lines)


def _lacking(board: Board, claim: Claim) -> str:
    """What is said of a claim whose rows are not all there: that it cannot be decided, where a row says why."""
    for one in claim.compare:
        for row in map(board.experiments[one.experiment].row, one.rows):
            if row.missing:
                return f"undecided, for `{row.name}` is {without(row)}"
    return NOT_RUN


def _short(board: Board, claim: Claim) -> list[str]:
    """The rows that a claim is about of which ours are below the paper's, by the figure that verdicts go by."""
    found = []
    for one in claim.compare:
        experiment = board.experiments[one.experiment]
        metric = one.metric if "/" in one.metric else experiment.metrics[0]  # of parts, each for itself
        for row in map(experiment.row, one.rows):
            ours = board.real(experiment, row, metric)
            if ours is not None and verdict(experiment, row, metric, ours).startswith("below"):
                found.append(row.name)
    return list(dict.fromkeys(found))
