"""What speaks against a trained model as a whole: said when it is trained, and again when it is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from compgcn.cli.console import err
from compgcn.cli.tables import printable

if TYPE_CHECKING:
    from compgcn.run import Run


def doubts(metrics: dict[str, Any]) -> list[str]:
    """Where a model has learned nothing that a simpler one, or none, would not know; by the metrics of its run."""
    if not metrics:
        return []
    return _of_classes(metrics) if "classes" in metrics else _of_links(metrics)


def _of_links(metrics: dict[str, Any]) -> list[str]:
    popular = metrics.get("popularity", {}).get("test", {}).get("mrr", 0.0)
    if not metrics["test"] or metrics["test"]["mrr"] > popular:
        return []
    return ["the model is no better than the baseline: give it more triples, more epochs or other settings"]


def _of_classes(metrics: dict[str, Any]) -> list[str]:
    found, advice = [], "give it more labels, more epochs or other settings"
    control = metrics.get("facts", {}).get("test", {})
    if control and metrics["test"]["accuracy"] < control["accuracy"]:
        found.append(f"the model is no better than the regression on counted facts: {advice}")
    split = "test" if metrics["test"] else "validation"
    matrix = (metrics["test"] or metrics["valid"]).get("confusion", [])
    given = [name for name, column in zip(metrics["classes"], zip(*matrix, strict=True), strict=False) if any(column)]
    if len(given) == 1 and sum(any(row) for row in matrix) > 1:
        items = f"all {sum(map(sum, matrix)):,} {split} items"
        found.append(f"{items} are predicted as '{printable(given[0])}': {advice}")
    return found


def tell(run: Run) -> None:
    """A line on stderr for each, after what was asked."""
    for doubt in doubts(run.metrics):
        err.print(f"note: {doubt}")
