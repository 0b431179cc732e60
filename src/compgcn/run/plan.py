"""The cost of training before it begins: bytes by part and rank, bytes sent, and the seconds of an epoch.

Sizes count the tensors of `compgcn.tasks` and `compgcn.shards`; seconds come from four rates of a device. The copies of
activations that a step holds and its passes over them are fitted to measured runs.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn import functional as F

from compgcn.config import Config, configure
from compgcn.data import KnowledgeGraph
from compgcn.errors import InputError
from compgcn.run.build import CONDITIONAL, build_model
from compgcn.shards.link_prediction import ENTITY_ROWS
from compgcn.tasks.objectives import OBJECTIVES, rows_alone
from compgcn.tasks.sampling import Batches

STATES = {"adam": 2, "adagrad": 1, "sgd": 0}  # numbers that an optimiser keeps for each weight
NETWORK = 25e9  # bytes a second that a rank is assumed to send

_FLOAT, _LONG = 4, 8  # bytes
_LIBRARIES = 640 * 2**20  # Python, torch and compiled kernels in the memory of a process
_NAME = 120  # bytes of an entity's name and of its place in the vocabulary
_SORTED = 11  # copies of the known facts that a GPU holds while it indexes them, in both directions
_INDEX = 400  # bytes of a fact on the host: its row, and the indexes of known answers that calibration makes
_PLAN = 3 * 20 + 4 * _LONG + _FLOAT  # bytes of a message: three orders of a plan, ends, relation and weight
_SCORES = 3  # copies of a batch's scores that a step holds
_PASSES = 12  # of a step over its scores, one number after another: softmax, gradient and their parts
_SCANNED = 6  # of an evaluation over its scores
_LAYER = 10  # vectors of an entity that a layer keeps for its gradient
_TOUCHED = 40  # passes of a layer over the vectors of an entity, there and back
_UPDATED = {"adam": 10, "adagrad": 18, "sgd": 6}  # passes over a weight: its gradient and the update
_SLACK = {"cpu": 1.4, "cuda": 1.0}  # a CPU shares its caches and allocates anew: the counted work takes longer there
OPERATIONS = 400  # calls of a step, each with its overhead
_REPLAYED = 1.5e-6  # seconds that a call of a recorded step takes at least
_RANKED = {"cpu": 2**25, "cuda": 2**26}  # scores at a time of an evaluation, which holds three copies
_CALIBRATED = 40  # bytes of a score in a calibration, of which it holds 2^22


class Outline(KnowledgeGraph):
    """A graph of which only the sizes are known, triples of all splits; enough to choose settings for it.

    `held_out` has the shares of valid and of test.
    """

    def __init__(self, entities: int, relations: int, triples: int, held_out: tuple[float, float] = (0.1, 0.1)) -> None:
        counts = [int(share * triples) for share in held_out]
        sizes = {"train": triples - sum(counts), "valid": counts[0], "test": counts[1]}
        rows = {name: np.broadcast_to(np.zeros((1, 3), dtype=np.int64), (size, 3)) for name, size in sizes.items()}
        for name, value in {"name": "outline", "origin": {}, "_sizes": (entities, relations), **rows}.items():
            object.__setattr__(self, name, value)

    @property
    def num_entities(self) -> int:
        return int(self.__dict__["_sizes"][0])

    @property
    def num_relations(self) -> int:
        return int(self.__dict__["_sizes"][1])

    def fingerprint(self) -> str:
        """Return a mark that no data have."""
        return "outline"


class Rates(NamedTuple):
    """The rates of a device; `network` is assumed, not measured."""

    device: str
    stream: float  # bytes a second of numbers read or written one after another
    gather: float  # bytes a second of rows read at random places
    products: float  # multiplications and additions a second in products of matrices
    call: float  # seconds of an operation without work
    network: float = NETWORK  # bytes a second that a rank sends


class Shape(NamedTuple):
    """The sizes of a graph, and those of the rank that has most to do."""

    entities: int
    relations: int
    triples: int  # of train
    held_out: int
    ranked: int  # validation triples that choose the epoch
    queries: int  # distinct ones of train, from both sides
    ranks: int
    rows: int  # entities of a rank
    messages: int  # that a rank receives
    halo: int  # entities of other ranks that it hears from


class Part(NamedTuple):
    """Bytes of one part on a rank."""

    name: str
    bytes: int
    sharded: bool  # falls with the number of ranks
    when: str  # "always", "step", "evaluation", or "disk"
    host: bool = False  # in the memory of the CPU, wherever the model is


class Plan(NamedTuple):
    """The cost of a training on each of some ranks."""

    config: Config
    shape: Shape
    parts: list[Part]
    peak: int  # bytes on the device of a rank
    host: int  # bytes in the memory of the CPU besides; 0 where it is the device
    steps: int  # of an epoch
    sent: int  # bytes that a rank sends in a step
    seconds: dict[str, float]  # of a step by part, of an epoch of steps, and of an evaluation


def must_have_vectors(config: Config) -> None:
    """Refuse a model that no plan counts; the task may still be open."""
    what = "the conditional model" if config.encoder.name == CONDITIONAL else config.task or "link-prediction"
    if what != "link-prediction":
        raise InputError(f"a plan is for link prediction with a vector for each entity, not for {what}")


def plan(config: Config, data: KnowledgeGraph, ranks: int, rates: Rates) -> Plan:
    """Return the cost of training a resolved config on so many ranks."""
    must_have_vectors(config)
    cost = Cost(config, data, shape_of(config, data, ranks), rates)
    parts = list(cost.parts())
    on_cpu = cost.kind == "cpu"

    def at(when: str) -> int:
        return sum(part.bytes for part in parts if part.when == when and (on_cpu or not part.host))

    peak = at("always") + max(at("step"), at("evaluation"))
    host = 0 if on_cpu else sum(part.bytes for part in parts if part.host and part.when != "disk")
    step = cost.seconds()
    whole = sum(step.values())
    found = {**step, "step": whole, "epoch": cost.steps * whole, "evaluation": cost.evaluation()}
    return Plan(config, cost.shape, parts, peak, host, cost.steps, cost.sent(), found)


def shape_of(config: Config, data: KnowledgeGraph, ranks: int) -> Shape:
    """Count a graph for so many ranks; of an `Outline` with equal degrees, which bound the halo from above."""
    N, T = data.num_entities, len(data.train)
    rows = -(-N // ranks)
    held_out = len(data.valid) + len(data.test)
    ranked = min(len(data.valid), config.training.valid_sample or len(data.valid))
    if isinstance(data, Outline):
        other = 1 - 1 / ranks
        halo = int(N * other * (1 - other ** (2 * T / N))) if ranks > 1 else 0
        return Shape(N, data.num_relations, T, held_out, ranked, T, ranks, rows, -(-2 * T // ranks), halo)
    s, r, o = data.train.T
    receiver, sender = np.concatenate((s, o)), np.concatenate((o, s))
    relation = np.concatenate((r, r + data.num_relations))
    queries = len(np.unique(receiver * (2 * data.num_relations) + relation))
    messages = int(np.bincount(receiver // rows, minlength=ranks).max())
    there = receiver // rows != sender // rows
    pairs = np.unique((receiver[there] // rows) * N + sender[there])
    halo = int(np.bincount(pairs // N, minlength=1).max())
    return Shape(N, data.num_relations, T, held_out, ranked, queries, ranks, rows, messages, halo)


class Cost:
    """The counts of a step: weights, rows, scores."""

    def __init__(self, config: Config, data: KnowledgeGraph, shape: Shape, rates: Rates) -> None:
        self.config, self.shape, self.rates = config, shape, rates
        self.kind = rates.device
        with torch.device("meta"):
            model = build_model(config, data)
        self.own = sum(w.numel() for name, w in model.named_parameters() if name in ENTITY_ROWS) / shape.entities
        self.shared = sum(w.numel() for name, w in model.named_parameters() if name not in ENTITY_ROWS)
        self.decoder = sum(w.numel() for name, w in model.decoder.named_parameters() if name not in ("entity_bias",))
        features = model.encoder.node_features
        self.given = 0 if features is None else features.shape[1]
        self.dims = list(config.encoder.dims)
        self.dim, self.layers = model.encoder.dim, len(model.encoder.layers)
        training = config.training
        self.objective = OBJECTIVES[training.loss]
        examples = shape.queries if self.objective.by_query else 2 * shape.triples
        batches = Batches(examples, training.batch_size, 0, torch.device("cpu"), training.epoch_size)
        self.steps, self.batch = batches.per_epoch, batches.size
        self.each = -(-self.batch // shape.ranks)  # triples whose negatives a rank scores
        self.together = training.sampler == "shared"
        self.negatives = training.negatives + 1 if self.objective.samples else 0
        bare = not self.layers and (self.kind == "cpu" or self.looked_up < shape.entities)
        self.in_part = shape.ranks == 1 and (bool(config.encoder.fanout) or (bare and rows_alone(training)))
        self.sparse = self.in_part and rows_alone(training)

    @property
    def looked_up(self) -> int:
        """Entities whose vectors a rank gathers in a step."""
        if not self.objective.samples:
            return self.batch
        drawn = self.negatives if self.together else self.each * self.negatives
        return min(self.batch + self.each + drawn, self.shape.entities)

    def encoded(self) -> Iterator[tuple[int, int, int, int]]:
        """Yield the rows that receive, the messages, and the dimensions of each layer."""
        s, pairs = self.shape, list(zip(self.dims[:-1], self.dims[1:], strict=True))
        if not self.in_part:
            yield from ((s.rows, s.messages, *dims) for dims in pairs)
            return
        rows, found = self.looked_up, []
        for most, dims in zip(reversed(self.config.encoder.fanout), reversed(pairs), strict=True):
            messages = int(rows * min(most, 2 * s.triples / s.entities))
            found.append((rows, messages, *dims))
            rows = min(s.entities, rows + messages)
        yield from reversed(found)

    def scores(self) -> int:
        """Return the scores of a step on a rank."""
        return self.each * self.negatives if self.objective.samples else self.batch * self.shape.rows

    def parts(self) -> Iterator[Part]:
        """Yield the bytes of every part."""
        s, states = self.shape, STATES[self.config.training.optimiser]
        facts, on_gpu = s.triples + s.held_out, self.kind != "cpu"
        table, rest = _FLOAT * self.own * s.rows, _FLOAT * self.shared
        encoded = list(self.encoded())
        yield Part("libraries", _LIBRARIES, False, "always", host=True)
        yield Part("names and triples", s.entities * _NAME + facts * _INDEX, False, "always", host=True)
        answers = _LONG * (3 * facts * on_gpu + 3 * s.triples + 2 * (4 * s.queries + 4 * s.triples))
        yield Part("triples and answers", answers, False, "always")
        if self.layers:
            loops = s.rows if on_gpu else 0  # they are messages of their own
            yield Part("messages of the encoder", (s.messages + loops) * _PLAN + 3 * _LONG * s.rows, True, "always")
        yield Part("entity table", int(table + _FLOAT * self.given * s.rows), True, "always")
        yield Part("its optimiser state", int(table * states), True, "always")
        yield Part("relations and decoder", int(rest * (1 + states)), False, "always")
        used = self.looked_up * self.dim * _FLOAT
        yield Part("gradients", int((4 * used if self.sparse else 2 * table) + rest), True, "step")
        kept = sum(rows * _LAYER * (a + b) // 2 + (0 if self.in_part else s.halo) * a for rows, _, a, b in encoded)
        if self.layers:
            yield Part("activations of the encoder", _FLOAT * kept, True, "step")
        if s.halo and self.layers:
            yield Part("halo", 2 * _FLOAT * s.halo * max(self.dims), True, "step")
        vectors = 0 if self.together else self.scores() * self.dim if self.objective.samples else 0
        held = _FLOAT * (
            _SCORES * self.scores() + 2 * vectors + 6 * self.batch * self.dim + self.batch * self.convolved
        )
        yield Part("scores of a batch", held, not self.objective.samples, "step")
        encodes = _FLOAT * s.rows * (2 * max(self.dims) if self.layers else 0)
        block = _RANKED[self.kind] if self.kind != "cpu" else min(_RANKED["cpu"], max(2**21, 128 * s.entities))
        block = min(block, s.held_out * s.rows)
        held = 3 * _FLOAT * block + _CALIBRATED * min(2**22, 512 * s.rows) + encodes
        yield Part("scores of an evaluation", held, False, "evaluation")
        if on_gpu:
            yield Part("index of known answers", 2 * _LONG * _SORTED * facts // s.ranks, True, "evaluation")
        yield Part("checkpoint", int((table + rest) * (1 + states)), True, "disk")

    @property
    def convolved(self) -> int:
        """Numbers of feature maps that a convolution holds for a query."""
        d = self.config.decoder
        return 2 * (d.filters or 0) * self.dim if self.decoder else 0

    def sent(self) -> int:
        """Return the bytes that a rank sends in a step: ids and rows, there and back, and what it adds up."""
        s = self.shape
        if s.ranks == 1:
            return 0
        asked = self.looked_up * (s.ranks - 1) / s.ranks
        rows = s.halo * sum(self.dims[:-1]) if self.layers else 0
        norm = 4 * sum(self.dims[1:]) if self.layers and self.config.encoder.batch_norm else 0
        reduced = self.shared + norm + (0 if self.objective.samples else 3 * self.batch)
        return int(_LONG * (asked + s.ranks) + 2 * _FLOAT * (rows + asked * self.dim) + _FLOAT * reduced)

    def seconds(self) -> dict[str, float]:
        """Return the seconds of a step by part."""
        s, rate, training = self.shape, self.rates, self.config.training
        encode = 0.0
        for rows, messages, a, b in self.encoded():
            encode += 3 * _FLOAT * messages * a / rate.gather + 6 * 3 * rows * a * b / rate.products
            encode += _FLOAT * rows * _TOUCHED * (a + b) / 2 / rate.stream
        scores = self.scores()
        score = 6 * scores * self.dim / rate.products + _FLOAT * _PASSES * scores / rate.stream
        if self.objective.samples and not self.together:
            score += 6 * _FLOAT * scores * self.dim / rate.gather
        score += 6 * self.batch * self.decoder / rate.products + 10 * _FLOAT * self.looked_up * self.dim / rate.gather
        updated = self.looked_up * self.dim if self.sparse else self.own * s.rows
        update = _FLOAT * _UPDATED[training.optimiser] * (updated + self.shared) / rate.stream
        found = {"encoder": encode, "scores": score, "update": update}
        found = {name: _SLACK[self.kind] * value for name, value in found.items()}
        found["calls"] = OPERATIONS * rate.call
        if self.kind == "cuda" and s.ranks == 1 and training.step != "eager":
            found["calls"] = max(0.0, OPERATIONS * _REPLAYED - encode - score - update)  # beside the work
        return found | ({"network": self.sent() / rate.network} if s.ranks > 1 else {})

    def evaluation(self) -> float:
        """Return the seconds of ranking the validation triples that choose the epoch."""
        scores = 2 * self.shape.ranked * self.shape.rows
        return scores * (2 * self.dim / self.rates.products + _FLOAT * _SCANNED / self.rates.stream)


def remedies(config: Config, data: KnowledgeGraph, ranks: int, rates: Rates, memory: float) -> dict[str, int]:
    """Return changes that bring the peak of a rank within so many bytes, each alone, with the peak then.

    The smallest change of every kind that suffices.
    """
    training, dims = config.training, config.encoder.dims
    kinds: list[list[tuple[int, dict[str, Any]]]] = [
        [(ranks * 2**k, {}) for k in range(1, 11)],
        [(ranks, {"encoder.dims": tuple(max(1, dim // half) for dim in dims)}) for half in (2, 4, 8)],
        [(ranks, {"training.batch_size": max(2, training.batch_size // part)}) for part in (2, 4, 8)],
    ]
    shared = {"training.loss": "sampled-cross-entropy", "training.sampler": "shared", "training.negatives": 512}
    if not OBJECTIVES[training.loss].samples:
        kinds.append([(ranks, shared)])
    if len(dims) > 1:
        few = min(training.batch_size, 4096)
        bare = {"encoder.name": "none", "encoder.dims": dims[-1:], "training.batch_size": few}
        bare |= {"encoder.composition": None, "encoder.norm": None}  # for the preset to fill
        kinds.append([(ranks, bare)])
        if ranks == 1:  # several ranks encode the whole graph
            kinds.append([(ranks, shared | {"training.batch_size": 4096, "encoder.fanout": (10,) * (len(dims) - 1)})])
    found = {}
    for tried in kinds:
        for count, settings in tried:
            try:
                peak = plan(configure(config, settings), data, count, rates).peak
            except InputError:  # not every decoder takes every dimension
                continue
            if peak <= memory:
                found[_words(settings) or f"--devices {count}"] = peak
                break
    return found


def _words(settings: Mapping[str, Any]) -> str:
    given = {name: value for name, value in settings.items() if value is not None}
    listed = {name: ",".join(map(str, value)) for name, value in given.items() if isinstance(value, tuple)}
    return " ".join(f"--set {name}={value}" for name, value in (given | listed).items())


def measure(device: torch.device, clock: Callable[[], float] = time.perf_counter) -> Rates:
    """Measure the rates of a device, in about a second."""

    def best(work: Callable[[], object], times: int = 5) -> float:
        taken = []
        for _ in range(times + 1):  # the first warms up
            begun = clock()
            work()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            taken.append(clock() - begun)
        return max(min(taken[1:]), 1e-9)

    numbers = torch.ones(2**23 if device.type == "cpu" else 2**27, device=device)
    table = numbers.view(-1, 128)
    places = torch.randint(len(table), (len(table),), device=device, generator=torch.Generator(device).manual_seed(0))
    left, right, one = numbers[: 2**17].view(1024, 128), table[: 2**14], numbers[:8]
    stream = 2 * _FLOAT * len(numbers) / best(lambda: numbers.mul_(1.0))
    gather = 2 * _FLOAT * len(numbers) / best(lambda: F.embedding(places, table))
    products = 2 * 1024 * 128 * len(right) / best(lambda: left @ right.t())
    return Rates(device.type, stream, gather, products, best(lambda: [one.mul(1.0) for _ in range(100)]) / 100)


def read_rates(path: Path) -> Rates:
    """Read the rates in a file that `compgcn plan --json` wrote, or in its part "rates" alone."""
    try:
        tree = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        raise InputError(f"{path} is no JSON file of rates; write one with compgcn plan --json") from None
    with suppress(AttributeError, TypeError):
        found = Rates(**tree.get("rates", tree))
        if min(found[1:]) > 0:
            return found
    raise InputError(f"{path} has no rates: expected those of compgcn plan --json, numbers above 0 under 'rates'")
