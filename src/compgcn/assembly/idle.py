"""Settings that were given and have no part in what is trained."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from compgcn.config import PATHS, Config, names
from compgcn.decoders import DECODERS

_SAMPLED = ("margin", "self-adversarial", "sampled-cross-entropy")


class Rule(NamedTuple):
    """Settings of one kind, which configs they have a part in, and in words why they have none in others."""

    names: frozenset[str]
    used: Callable[[Config], bool]
    why: Callable[[Config], str]


def _rule(listed: str, used: Callable[[Config], bool], why: Callable[[Config], str]) -> Rule:
    section, _, rest = listed.partition(".")
    return Rule(frozenset(f"{section}.{name}" for name in rest.split()), used, why)


def _loss(config: Config) -> str:
    return f"the loss is '{config.training.loss}'"


_LAYERS = _rule(
    "encoder.norm flow bases dropout loop_dropout hidden_dropout bias batch_norm activation self_loop edge_dropout "
    "graph",
    lambda config: len(config.encoder.dims) > 1,
    lambda config: f"the encoder '{config.encoder.name}' has no layer",
)
_LINKS = (
    _LAYERS,
    _rule(
        "decoder.margin margin_decay margin_patience",
        lambda config: DECODERS[config.decoder.name].margin,
        lambda config: f"the decoder '{config.decoder.name}' has no margin",
    ),
    _rule(
        "decoder.filters kernel height input_dropout feature_dropout hidden_dropout",
        lambda config: not isinstance(DECODERS[config.decoder.name].query, str),
        lambda config: f"the decoder '{config.decoder.name}' has no convolution",
    ),
    _rule(
        "decoder.generator",
        lambda config: config.training.sampler == "kbgan",
        lambda config: f"the sampler is '{config.training.sampler}'",
    ),
    _rule("training.negatives sampler", lambda config: config.training.loss in _SAMPLED, _loss),
    _rule("training.loss_margin", lambda config: config.training.loss == "margin", _loss),
    _rule("training.temperature", lambda config: config.training.loss == "self-adversarial", _loss),
    _rule("training.label_smoothing", lambda config: config.training.loss not in _SAMPLED, _loss),
    _rule("training.smoothing_floor", lambda config: config.training.loss == "bce", _loss),
    _rule(
        "training.regularisation",
        lambda config: config.training.regulariser != "none",
        lambda config: "there is no regulariser",
    ),
)
_ANY = (
    _rule(
        "training.schedule_start schedule_floor",
        lambda config: config.training.schedule != "constant",
        lambda config: "the schedule is 'constant'",
    ),
)


def idle(config: Config, given: Iterable[str]) -> list[str]:
    """A sentence for each setting of those given, by any of its names, that the config makes no use of.

    One that is given as what it would be anyway, as in the file of a whole run, is passed over.
    """
    usual, found = names(Config().model_dump()), []
    chosen = names(config.model_dump())
    for name in dict.fromkeys(PATHS[name] for name in given):
        if chosen[name] == usual[name]:
            continue
        if config.task != "link-prediction" and name.startswith("decoder."):
            found.append(f"{name} has no effect: {config.task} has no decoder")
        rules = (*_ANY, *_LINKS) if config.task == "link-prediction" else _ANY
        unused = (rule for rule in rules if name in rule.names and not rule.used(config))
        found += [f"{name} has no effect: {rule.why(config)}" for rule in unused]
    return found
