"""Probabilities of a model that is trained, fitted to validation."""

from __future__ import annotations

from collections.abc import Callable

from compgcn.answers.calibrate import Scaling, Weighing, fit_temperature, stored
from compgcn.answers.discover import weighing
from compgcn.answers.links import Links, Progress, fitted
from compgcn.data import KnowledgeGraph
from compgcn.run.protocols import Session, validation
from compgcn.tasks.classification import log_probabilities
from compgcn.tasks.inputs import Dataset

CALIBRATED = (None, "holdout")  # protocols of classification that leave validation out of training, and none at all


def calibrate(session: Session, data: Dataset) -> None:
    """Fit the probabilities of the model that is kept to validation, where it was left out of training."""
    config, scalings = session.config, dict[str, Scaling | None]()
    discoveries: Weighing | None = None
    if config.classifier.protocol is None:
        session.built.model.eval()
        assert isinstance(data, KnowledgeGraph)
        links = Links(config, data, session.built, {})
        fit_probabilities(links, lambda kind: session.told(f"calibrating {kind}"))
        scalings, discoveries = dict(links.scalings), links.weighing
    elif config.classifier.protocol == "holdout":
        _, valid = validation(session)
        if len(valid):
            found = log_probabilities(session.built, valid, session.training.batch_size)
            scalings = {"classes": fit_temperature(found, session.targets[valid])}
    if any(scalings.values()):
        session.folder.keep_calibration(stored(scalings, discoveries))


def fit_probabilities(links: Links, told: Callable[[str], Progress | None] = lambda kind: None) -> None:
    """The calibration of a link predictor: of its answers, and of discoveries by the probabilities these then have.

    `told` has, for "entities", "relations" and "discoveries", who is told how far it is, and may end it by raising.
    """
    links.scalings = fitted(links, told)
    links.weighing = weighing(links, told("discoveries"))
