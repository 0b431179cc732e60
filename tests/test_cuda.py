"""The package on a GPU: the same numbers as on the CPU, under autocast and torch.compile, and whole runs."""

from __future__ import annotations

import pytest
import torch

import compgcn
import compgcn.nn.filters
from compgcn.kernels import Combine, Own, aggregate, make_pair_plan, make_plan, reference, statistics, update
from compgcn.nn import CompGCNConv
from compgcn.nn.compose import COMPOSITIONS, LEARNED
from compgcn.nn.decoders import DECODERS, ConvolutionSettings, build_decoder
from compgcn.nn.encoder import PRESETS, Encoder
from compgcn.nn.graph import RelationalGraph
from compgcn.run.build import build_links
from compgcn.run.resolve import expand, recommended
from compgcn.tasks.sampling import SAMPLERS, Negatives
from compgcn.train.loop import Interrupted, make_step
from compgcn.train.step import Step

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

N, R, E = 300, 7, 4000


def skewed(dtype: torch.dtype = torch.float32) -> tuple[torch.Tensor, ...]:
    """x, rel, edge_index, edge_type with hubs far longer than a chunk."""
    generator = torch.Generator().manual_seed(0)
    edge_index = (torch.rand(2, E, generator=generator) ** 3 * N).long()
    edge_type = (torch.rand(E, generator=generator) ** 2 * R).long()
    x, rel = torch.randn(N, 50, generator=generator), torch.randn(2 * R, 50, generator=generator)
    return x.to(dtype), rel.to(dtype), edge_index, edge_type


def outputs_and_gradients(conv: CompGCNConv, tensors: tuple[torch.Tensor, ...], **options) -> list[torch.Tensor]:
    x, rel = (t.clone().requires_grad_() for t in tensors[:2])
    out = conv(x, rel, *tensors[2:], **options)
    loss = (out[0].square().sum() + out[1].square().sum()) / N
    return [*out, *torch.autograd.grad(loss, [x, rel, *conv.parameters()], allow_unused=True)]


def assert_same_on_both_devices(monkeypatch, conv: CompGCNConv, dtype: torch.dtype, keep=None, **patches) -> None:
    """Compare outputs and gradients; the GPU runs with some numbers of `compgcn.nn.filters` replaced."""
    tensors, conv = skewed(dtype), conv.to(dtype)
    expected = outputs_and_gradients(conv, tensors, keep=keep)
    for name, value in patches.items():
        monkeypatch.setattr(compgcn.nn.filters, name, value)
    keep = None if keep is None else keep.cuda()
    ours = outputs_and_gradients(conv.cuda(), tuple(t.cuda() for t in tensors), keep=keep)
    close = {"rtol": 1e-4, "atol": 2e-4} if dtype == torch.float32 else {"rtol": 1e-8, "atol": 1e-8}
    for a, b in zip(ours, expected, strict=True):
        if b is not None:
            torch.testing.assert_close(a.cpu(), b, **close)


@pytest.mark.parametrize("composition", COMPOSITIONS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_layer_gives_the_same_on_both_devices(monkeypatch, composition, dtype):
    assert_same_on_both_devices(monkeypatch, CompGCNConv(50, 30, R, composition), dtype)


EVERY_LEARNED = pytest.mark.parametrize("learned", LEARNED.values(), ids=list(LEARNED))


@EVERY_LEARNED
@pytest.mark.parametrize("rows", [500, 2**14], ids=["parts", "whole"])
def test_a_learned_composition_gives_the_same_on_both_devices(monkeypatch, learned, rows):
    assert_same_on_both_devices(monkeypatch, CompGCNConv(50, 30, R, learned), torch.float64, _ROWS=rows)


@pytest.mark.parametrize("composition", [*COMPOSITIONS, "ntn"])
@pytest.mark.parametrize("filters", ["direction", "relation"])
def test_edges_are_left_out_alike_on_both_devices(monkeypatch, composition, filters):
    keep = torch.rand(E, generator=torch.Generator().manual_seed(1)).round().mul(2).double()
    conv = CompGCNConv(50, 30, R, composition, filters=filters)
    assert_same_on_both_devices(monkeypatch, conv, torch.float64, keep)


@pytest.mark.parametrize("kept", [0, 2**26], ids=["again", "kept"])
@pytest.mark.parametrize("composition", COMPOSITIONS)
def test_bases_one_at_a_time_give_the_same_on_both_devices(monkeypatch, composition, kept):
    """Against the mixed ones of the CPU, by which they are tested there."""
    conv = CompGCNConv(50, 30, R, composition, filters="basis", bases=3)
    assert_same_on_both_devices(monkeypatch, conv, torch.float64, mixes=lambda *sizes: False, _KEPT=kept)


@pytest.mark.parametrize("name", PRESETS)
def test_every_encoder_gives_the_same_on_both_devices(name):
    _, _, edge_index, edge_type = skewed()
    graph = RelationalGraph(*edge_index, edge_type, N, R)
    encoder = Encoder(N, R, [40, 30, 20], name, bases=2).eval()
    expected = encoder(graph)[0].detach().clone()  # `cuda` moves the table of an encoder without layers
    ours, _ = encoder.cuda()(graph.to("cuda"))
    torch.testing.assert_close(ours.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", DECODERS)
@pytest.mark.parametrize("form", ["all", "one list", "a list per query"])
def test_every_decoder_gives_the_same_on_both_devices(name, form):
    generator = torch.Generator().manual_seed(0)
    tables = [torch.randn(size, 40, generator=generator, dtype=torch.float64) for size in (70, 70, N)]
    own = torch.randint(N, (70, 9), generator=generator)
    candidates = {"all": None, "one list": torch.arange(7, 200), "a list per query": own}[form]
    decoder = build_decoder(name, N, 40, settings=ConvolutionSettings(filters=5, kernel=3)).double().eval()
    results = []
    for device in ("cpu", "cuda"):
        leaves = [table.to(device).requires_grad_() for table in tables]
        chosen = None if candidates is None else candidates.to(device)
        scores = decoder.to(device)(*leaves, chosen)
        gradients = torch.autograd.grad(scores.square().sum(), [*leaves, *decoder.parameters()])
        results.append([value.cpu() for value in (scores.detach(), *gradients)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("composition", [*COMPOSITIONS, *LEARNED.values()], ids=lambda row: getattr(row, "name", row))
def test_the_layer_repeats_to_the_bit(composition):
    conv, tensors = CompGCNConv(50, 30, R, composition=composition).cuda(), tuple(t.cuda() for t in skewed())
    first, second = (outputs_and_gradients(conv, tensors) for _ in range(2))
    assert all(a is None or torch.equal(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("composition", ["mult", "corr"])
def test_autocast_stays_close_to_full_precision(composition):
    conv, tensors = CompGCNConv(50, 30, R, composition=composition).cuda(), tuple(t.cuda() for t in skewed())
    expected = conv(*tensors)[0]
    with torch.autocast("cuda", torch.bfloat16):
        ours = conv(*tensors)[0]
    assert ours.dtype == torch.bfloat16
    assert (ours - expected).norm() < 0.02 * expected.norm()


@pytest.mark.filterwarnings("ignore")  # what the compiler has to say of torch and of the machine
@pytest.mark.parametrize("composition", ["mult", "corr"])
def test_a_compiled_layer_gives_the_same(composition):
    conv, tensors = CompGCNConv(50, 30, R, composition=composition).cuda(), tuple(t.cuda() for t in skewed())
    expected = outputs_and_gradients(conv, tensors)
    ours = outputs_and_gradients(torch.compile(conv, fullgraph=True), tensors)
    for a, b in zip(ours, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=2e-4)


EVERY_COMBINE = pytest.mark.parametrize("combine", list(Combine), ids=lambda combine: combine.name)


@EVERY_COMBINE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_messages_in_runs_have_the_sums_of_both_devices(combine, dtype):
    x, rel, (sender, row), relation = skewed(dtype)
    weight, results = torch.rand(E, generator=torch.Generator().manual_seed(1), dtype=dtype), []
    for device, in_runs in (("cpu", False), ("cuda", True), ("cuda", True)):
        leaves = [t.to(device).requires_grad_() for t in (x, rel, weight)]
        messages = (t.to(device) for t in (row, sender, relation))
        plan = make_plan(*messages, rows=N, senders=N, relations=2 * R, in_runs=in_runs)
        out = aggregate(*leaves, plan, combine)
        results.append([t.cpu() for t in (out.detach(), *torch.autograd.grad(out.square().sum() / N, leaves))])
    close = {"rtol": 1e-4, "atol": 2e-3} if dtype == torch.float32 else {"rtol": 1e-8, "atol": 1e-8}
    for theirs, ours, again in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, **close)
        assert torch.equal(ours, again)


def statistics_and_gradients(tensors, weight, combine, compiled=False) -> list[torch.Tensor]:
    """Every statistic, and the gradients of all of them by x, z, the weight and own messages."""
    x, rel, (sender, row), relation = tensors
    plan = make_pair_plan(row, sender, relation, rows=N + 1, senders=N, relations=2 * R)  # the last row is empty
    leaves = [t.clone().requires_grad_() for t in (x, rel, weight, x[0])]
    own = Own(torch.arange(50, device=x.device), leaves[3])
    out = (torch.compile(statistics, fullgraph=True) if compiled else statistics)(*leaves[:3], plan, combine, own)
    slopes = torch.linspace(-1, 1, 50, dtype=x.dtype, device=x.device)
    loss = sum((i + slopes) @ statistic[:N].nan_to_num(0, 0, 0).sum(0) for i, statistic in enumerate(out)) / N
    return [t.detach().cpu() for t in (*out, *torch.autograd.grad(loss, leaves))]


def start_and_gradients(combine, compiled=False, with_only=True) -> list[torch.Tensor]:
    """Sums over tables with one row in each column, and an own message there, with their gradients."""
    x, rel, (sender, row), relation = (t.cuda() for t in skewed())
    x, rel = (t.repeat(1, 40).requires_grad_() for t in (x, rel))
    only = torch.arange(20, device="cuda").repeat_interleave(100)
    value, empty = torch.linspace(-1, 1, 2000, device="cuda").requires_grad_(), torch.zeros_like(x)
    cells = only, torch.arange(2000, device="cuda")
    plan = make_plan(row, sender, relation, rows=N, senders=N, relations=2 * R, in_runs=True)
    sums = torch.compile(aggregate, fullgraph=True) if compiled else aggregate
    start = empty.index_put(cells, x[cells])
    out = sums(start, rel, torch.ones(E, device="cuda"), plan, combine, Own(only, value), only if with_only else None)
    return [out.detach(), *torch.autograd.grad(out.square().sum() / N, (x, rel, value))]


@pytest.mark.filterwarnings("ignore")
@EVERY_COMBINE
def test_zeros_left_out_and_compiled_code_change_no_sum(combine):
    expected = start_and_gradients(combine, with_only=False)
    for ours in (start_and_gradients(combine), start_and_gradients(combine, compiled=True)):
        for a, b in zip(ours, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-3)


@EVERY_COMBINE
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_statistics_are_the_same_on_both_devices_and_repeat_to_the_bit(combine, dtype):
    tensors = skewed(dtype)
    weight = torch.rand(E, generator=torch.Generator().manual_seed(1)).round().to(dtype)
    theirs = statistics_and_gradients(tensors, weight, combine)
    on_gpu = tuple(t.cuda() for t in tensors), weight.cuda(), combine
    ours, again = statistics_and_gradients(*on_gpu), statistics_and_gradients(*on_gpu)
    # The extremes are messages, whose rounding leaves no choice but in the last bit of a sum of two products.
    share = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
    for a, b, c in zip(theirs, ours, again, strict=True):
        finite = a.isfinite()
        assert torch.equal(b, c)
        assert torch.equal(finite, b.isfinite())
        difference = (a - b)[finite].double()
        assert difference.norm() <= share * a[finite].double().norm()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("combine", [Combine.MULT, Combine.CONJUGATE], ids=lambda combine: combine.name)
def test_compiled_statistics_are_the_same(combine):
    given = tuple(t.cuda() for t in skewed()), torch.rand(E, device="cuda").round(), combine
    for a, b in zip(statistics_and_gradients(*given), statistics_and_gradients(*given, compiled=True), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@EVERY_COMBINE
def test_bfloat16_is_summed_in_single_and_rounded_once(combine):
    x, rel, edge_index, edge_type = (t.cuda() for t in skewed(torch.bfloat16))
    plan = make_plan(edge_index[1], edge_index[0], edge_type, rows=N, senders=N, relations=2 * R)
    weight = torch.rand(E, device="cuda")
    single = aggregate(x.float(), rel.float(), weight, plan, combine)
    assert torch.equal(aggregate(x, rel, weight, plan, combine), single.bfloat16())


def update_operands(d: int, K: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """x, parts, degree, scale, weight, gamma, beta, bias; the sums of squares leave variances above the floor."""
    generator = torch.Generator().manual_seed(0)
    x, *parts = torch.randn(1 + K, N, 9, d, generator=generator)
    degree, scale = torch.randint(1, 9, (N,), generator=generator).float(), torch.rand(N, generator=generator) + 0.5
    if K == 4:
        parts[1] = parts[0].square() + degree[:, None, None] * (1 + torch.rand(N, 9, d, generator=generator))
    weight = torch.randn((1 + 3 * K) * d, d, generator=generator) / (1 + 3 * K) / d**0.5
    rows = torch.randn(3, d, generator=generator)
    tables = [x.to(dtype), torch.stack(parts).to(dtype), degree, scale, weight, *rows]
    return [t.cuda().requires_grad_(i not in (2, 3)) for i, t in enumerate(tables)]


def update_and_gradients(function, tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    out = function(*tensors)
    cotangent = torch.randn(out.shape, generator=torch.Generator().manual_seed(1)).cuda()
    leaves = [t for t in tensors if t.requires_grad]
    return [out, *torch.autograd.grad(out, leaves, cotangent.to(out.dtype))]


@pytest.mark.parametrize(("d", "K"), [(16, 1), (32, 1), (64, 1), (16, 4), (32, 4)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
def test_a_fused_update_is_close_to_its_definition_and_repeats_to_the_bit(d, K, dtype):
    tensors = update_operands(d, K, dtype)
    first, second = (update_and_gradients(update, tensors) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
    exact = [t.detach().double().requires_grad_(t.requires_grad) for t in tensors]
    defined = update_and_gradients(reference.update, exact)
    # A number that rounding moves across zero has another slope: rounding W alone changes gradients by 2 %.
    tolerance = 5e-2 if dtype == torch.bfloat16 else 1e-4
    for ours, theirs in zip(first, defined, strict=True):
        assert (ours.double() - theirs).norm() <= tolerance * theirs.norm()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("K", [1, 4])
def test_a_compiled_update_is_the_eager_one(K):
    tensors = update_operands(32, K, torch.bfloat16)
    eager, compiled = (update_and_gradients(f, tensors) for f in (update, torch.compile(update, fullgraph=True)))
    for ours, theirs in zip(compiled, eager, strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_trains_and_answers_on_the_gpu(tmp_path, precision):
    run = compgcn.fit(
        compgcn.load("world"), run_dir=tmp_path, epochs=2, device="cuda", precision=precision, dims=[50, 50], kernel=3
    )
    on_cpu = compgcn.open_run(tmp_path, device="cpu")
    ours, theirs = (r.predict(head="France", relation="borders", top=3) for r in (run, on_cpu))
    assert [p.id for p in ours] == [p.id for p in theirs]


STILL = {"encoder.dropout": 0.0, "encoder.hidden_dropout": 0.0, "decoder.hidden_dropout": 0.0, "feature_dropout": 0.0}


def assert_recorded_trains_like_eager(folder, settings: dict, tolerance: float) -> None:
    data = compgcn.load("world")
    recorded, eager = (
        compgcn.fit(data, run_dir=folder / step, step=step, device="cuda", **settings).entity_embeddings()[1]
        for step in ("auto", "eager")
    )
    assert abs(recorded - eager).max() < tolerance * abs(eager).max()


@pytest.mark.parametrize("loss", ["bce", "cross-entropy"])
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_recorded_step_trains_like_the_eager_one(tmp_path, decoder, loss):
    settings = STILL | {"decoder": decoder, "loss": loss, "dims": [20, 20], "kernel": 3, "filters": 8}
    settings |= {"epochs": 1, "batch_size": 512, "schedule": "linear", "grad_clip": 1.0}
    assert_recorded_trains_like_eager(tmp_path, settings, 2e-3)


AROUND = {"vrgcn": {"encoder": "vrgcn"}, "ntn": {"composition": "ntn"}, "conve": {"composition": "conve"}}


@pytest.mark.parametrize("loss", ["bce", "cross-entropy"])
@pytest.mark.parametrize("what", AROUND)
def test_other_encoders_and_removed_edges_are_recorded_too(monkeypatch, tmp_path, what, loss):
    monkeypatch.setattr(compgcn.nn.filters, "_ROWS", 100)
    settings = STILL | {"decoder": "distmult", "loss": loss, "dims": [20, 20], "epochs": 1, "batch_size": 512}
    assert_recorded_trains_like_eager(tmp_path, settings | AROUND[what], 2e-3)


OTHERS = [
    {"optimiser": "adagrad", "lr": 0.1},
    {"optimiser": "sgd", "lr": 0.1},
    {"regulariser": "n3", "relation_prediction": 0.5},
    {"decoder": "transe", "regulariser": "n3", "relation_prediction": 0.5, "batch_size": 64, "epochs": 1},
    {"regulariser": "dura", "init_scale": 0.1},
]


@pytest.mark.parametrize("others", OTHERS, ids=str)
def test_every_optimiser_and_term_is_recorded_as_it_is(tmp_path, others):
    settings = {"encoder": "none", "decoder": "distmult", "loss": "cross-entropy", "dims": [20], "epochs": 2}
    assert_recorded_trains_like_eager(tmp_path, STILL | settings | others, 5e-3)


def test_a_recorded_step_on_the_rows_of_its_batch_has_the_numbers_of_the_whole_table_on_a_cpu(monkeypatch):
    def drawn(task, batch):  # the same on every device
        return Negatives((7 * batch.answer[:16] + 3) % task.num_entities)

    monkeypatch.setitem(SAMPLERS, "shared", SAMPLERS["shared"]._replace(draw=drawn))
    data = compgcn.load("world")
    settings = {"data.source": "world", "encoder": "none", "decoder": "distmult", "dims": (20,), "batch_size": 64}
    settings |= {"loss": "sampled-cross-entropy", "sampler": "shared", "optimiser": "adagrad", "precision": "float32"}
    config = expand(recommended({**settings, "regulariser": "n3"}, data), data)
    tables = []
    for device in ("cpu", "cuda"):
        torch.manual_seed(0)
        task = build_links(config, data, torch.device("cpu"))
        if device == "cuda":
            weights, task = task.model.state_dict(), build_links(config, data, torch.device("cuda"))
            task.model.load_state_dict(weights)
        assert task.in_part
        task.in_part = device == "cuda"
        task.model.train()
        update = make_step(task, config.training, 10**9)
        for step in range(12):
            update(task.examples(0, step), 0.1)
        tables.append(task.model.encoder.nodes.detach().cpu())
    torch.testing.assert_close(*tables, rtol=1e-3, atol=1e-4)


def test_an_adversary_learns_in_a_recorded_step(tmp_path):
    settings = {"decoder": "transe", "encoder": "none", "dims": [50], "loss": "margin", "sampler": "kbgan", "lr": 0.01}
    data = compgcn.load("world")
    trained, fresh = (
        compgcn.fit(data, run_dir=tmp_path / str(epochs), epochs=epochs, device="cuda", **settings)
        for epochs in (10, 0)
    )
    assert trained.metrics["test"]["mrr"] > 2 * fresh.metrics["test"]["mrr"]
    assert trained.task.model.adversary.baseline.item() != 0


SMALL = {"dims": [20, 20], "kernel": 3, "filters": 8, "device": "cuda", "epochs": 1, "batch_size": 512, "loss": "bce"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("precision", ["float32", "mixed", "bfloat16"])
@pytest.mark.parametrize(
    "settings", [*({"decoder": name} for name in DECODERS), {"encoder": "rgcn-basis"}, *AROUND.values()], ids=str
)
def test_a_compiled_loss_has_the_gradients_of_the_plain_one(settings, precision):
    data = compgcn.load("world")
    config = expand(
        recommended({"data.source": "world", "precision": precision, **SMALL | STILL | settings}, data), data
    )
    gradients = []
    for compiled in (True, False):
        torch.manual_seed(0)
        task = build_links(config, data, torch.device("cuda"))
        task.model.train()
        step = Step(task.model, task.loss, config.training, compiled=compiled)
        step.optimiser.step = lambda: None  # keeps the weights as they are
        step(task.examples(0, 0), 0.0)
        gradients.append([p.grad.float().clone() for p in task.model.parameters() if p.grad is not None])
    tolerance, share = (1e-4, 1e-5) if precision == "float32" else (0.1, 1e-3)
    noise = share * max(theirs.norm() for theirs in gradients[1])  # before a batch norm a gradient is only rounding
    for ours, theirs in zip(*gradients, strict=True):
        assert (ours - theirs).norm() <= tolerance * theirs.norm() + noise


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("step", ["eager", "recorded", "compiled"])
@pytest.mark.parametrize(
    "settings",
    [
        {"decoder": "conve"},
        {"decoder": "transe"},
        {"encoder": "rgcn-basis"},
        {"loss": "self-adversarial"},
        {"composition": "conve", "decoder": "distmult"},
    ],
    ids=str,
)
def test_a_deterministic_run_repeats_to_the_bit(tmp_path, settings, step):
    data = compgcn.load("world")
    one, other = (
        compgcn.fit(data, run_dir=tmp_path / name, deterministic=True, step=step, **SMALL | settings)
        for name in ("one", "other")
    )
    assert (one.entity_embeddings()[1] == other.entity_embeddings()[1]).all()
    assert one.metrics == other.metrics


def test_a_recorded_run_resumes(tmp_path):
    settings = {"dims": [20, 20], "decoder": "distmult", "epochs": 4, "device": "cuda", "checkpoint_seconds": 0.0}
    data, events = compgcn.load("world"), []
    with pytest.raises(Interrupted):
        compgcn.fit(
            data, run_dir=tmp_path, notify=events.append, interrupted=lambda: events[-1].get("epoch") == 2, **settings
        )
    run = compgcn.fit(data, run_dir=tmp_path, notify=events.append, **settings)
    assert [e["epoch"] for e in events if e["event"] == "epoch"] == [1, 2, 3, 4]
    assert run.metrics["test"]["mrr"] > 0.1
