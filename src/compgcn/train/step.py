"""One update of the parameters: eagerly, or on a GPU recorded once and replayed as one CUDA graph."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from compgcn.config import Training

log = logging.getLogger(__name__)

_RAW = ("encoder.residual.nodes", "encoder.residual.relations.")  # raw vectors, which have the rate of the decoder
_WARM_UP = 3  # eager updates before one is recorded: kernels compile and buffers settle


class Adagrad(torch.optim.Optimizer):
    """w ← w − lr · g / (√Σg² + ε), the sum over all steps so far (Duchi et al., 2011), of g + decay · w.

    A sparse gradient costs as much as its rows: the others, whose gradient is 0, stay as they are. It takes no decay.
    Unlike in torch's own class, the rate may be a tensor, read at every step of a CUDA graph.
    """

    def __init__(
        self,
        weights: Iterable[nn.Parameter] | Iterable[dict[str, Any]],
        lr: float | Tensor = 0.01,
        weight_decay: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(weights, {"lr": lr, "weight_decay": weight_decay, "eps": eps})
        for group in self.param_groups:
            for weight in group["params"]:
                self.state[weight]["sum"] = torch.zeros_like(weight, memory_format=torch.preserve_format)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            given = [weight for weight in group["params"] if weight.grad is not None]
            for weight in given:
                if weight.grad.is_sparse:
                    self._update_rows(weight, weight.grad, group)
            weights = [weight for weight in given if not weight.grad.is_sparse]
            if not weights:
                continue
            gradients = [weight.grad for weight in weights]
            sums = [self.state[weight]["sum"] for weight in weights]
            if group["weight_decay"]:
                gradients = list(torch._foreach_add(gradients, weights, alpha=group["weight_decay"]))
            torch._foreach_addcmul_(sums, gradients, gradients)
            scale = torch._foreach_sqrt(sums)
            torch._foreach_add_(scale, group["eps"])
            torch._foreach_div_(scale, group["lr"])
            torch._foreach_addcdiv_(weights, gradients, scale, value=-1.0)

    def _update_rows(self, weight: nn.Parameter, gradient: Tensor, group: dict[str, Any]) -> None:
        if group["weight_decay"]:
            raise ValueError("weight decay moves every row, so that no gradient may be sparse")
        (given,), parts = gradient._indices(), gradient._values()  # [n], [n, d]
        # The first place of a row takes the sum of its gradients, the others 0; `coalesce` would wait for the device.
        rows = given.sort().values
        g = torch.zeros_like(parts).index_add_(0, torch.searchsorted(rows, given), parts)
        total = self.state[weight]["sum"].index_add_(0, rows, g.square()).index_select(0, rows)
        weight.index_add_(0, rows, g / total.sqrt_().add_(group["eps"]).div_(group["lr"]), alpha=-1.0)


Groups = Iterable[dict[str, Any]]  # parameters with a learning rate of their own

# By groups, weight decay, and whether a CUDA graph may record the step: then rates and counts are tensors on the GPU.
OPTIMISERS: dict[str, Callable[[Groups, float, bool], torch.optim.Optimizer]] = {
    "adam": lambda groups, decay, on_gpu: torch.optim.Adam(groups, weight_decay=decay, fused=True, capturable=on_gpu),
    "adagrad": lambda groups, decay, on_gpu: Adagrad(groups, weight_decay=decay),
    "sgd": lambda groups, decay, on_gpu: torch.optim.SGD(groups, weight_decay=decay, fused=True),
}


class Step:
    """Loss, gradients, clipping, optimiser: maps the examples of a batch and the learning rate to the loss.

    Args:
        loss: examples -> loss of the module on them.
        compiled: fuse the loss and its gradient with torch.compile.
    """

    def __init__(
        self, module: nn.Module, loss: Callable[[Tensor], Tensor], settings: Training, *, compiled: bool = False
    ) -> None:
        self.module, self.settings = module, settings
        self.loss = _Compiled(module, loss) if compiled else loss
        self.device = next(module.parameters()).device
        on_gpu = self.device.type == "cuda"
        self.optimiser = OPTIMISERS[settings.optimiser](self._groups(on_gpu), settings.weight_decay, on_gpu)

    def __call__(self, examples: Tensor, rate: float) -> Tensor:
        self._set(rate)
        return self._update(examples)

    def _groups(self, on_gpu: bool) -> list[dict[str, Any]]:
        """Group the parameters by their share of the step's learning rate."""
        slower = self.settings.encoder_lr
        shares: dict[float, list[nn.Parameter]] = {}
        for name, weight in self.module.named_parameters():
            apart = slower is not None and name.startswith("encoder.") and not name.startswith(_RAW)
            shares.setdefault(slower / self.settings.lr if slower and apart else 1.0, []).append(weight)
        groups = [{"params": shares[share], "share": share, "lr": self.settings.lr * share} for share in shares]
        if on_gpu:
            for group in groups:
                group["lr"] = torch.tensor(group["lr"], device=self.device)
        return groups

    def _set(self, rate: float) -> None:
        for group in self.optimiser.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["share"])
            else:
                group["lr"] = rate * group["share"]

    def _update(self, examples: Tensor) -> Tensor:
        self.optimiser.zero_grad(set_to_none=True)
        with _precision(chosen_precision(self.settings.precision, self.device), self.device.type):
            loss = self.loss(examples)
            loss.backward()  # type: ignore[no-untyped-call]
        self._finish_gradients()
        self.optimiser.step()
        return loss.detach()

    def _finish_gradients(self) -> None:
        """Bound the norm of the gradient, where asked."""
        if self.settings.grad_clip is not None:
            nn.utils.clip_grad_norm_(self.module.parameters(), self.settings.grad_clip)


class _Compiled:
    """A loss fused by torch.compile, or as it is where the compiler fails."""

    def __init__(self, module: nn.Module, loss: Callable[[Tensor], Tensor]) -> None:
        self._module, self._loss = module, loss
        self._tried = False

    def __call__(self, examples: Tensor) -> Tensor:
        if not self._tried:
            self._tried = True
            self._try(examples)
        return self._loss(examples)

    def _try(self, examples: Tensor) -> None:
        """Compile, and make a loss and its gradient that leave parameters, buffers and random numbers as they were."""
        module, training = self._module, self._module.training
        buffers = {name: value.clone() for name, value in module.named_buffers()}
        devices = [examples.device] if examples.is_cuda else []
        try:
            with torch.random.fork_rng(devices):
                module.eval()
                with torch.no_grad():
                    self._loss(examples)
                module.train(training)
                torch.compiler.reset()  # the code of earlier runs counts against a limit
                compiled = torch.compile(self._loss, fullgraph=True, dynamic=False)
                compiled(examples).backward()  # type: ignore[no-untyped-call]
            self._loss = compiled
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # training can do without
            reason = str(error).strip().partition("\n")[0]
            log.warning("the training step could not be compiled and runs more slowly: %s", reason)
        finally:
            module.train(training)
            module.zero_grad()
            with torch.no_grad():
                for name, value in module.named_buffers():
                    value.copy_(buffers[name])


class RecordedStep(Step):
    """An update recorded as one CUDA graph, which saves the launches and gives the numbers of the eager step.

    The loss must depend on the examples, the parameters and buffers, and torch's random numbers alone, and all shapes
    must be those of the first call.
    """

    _warm = 0
    _graph: torch.cuda.CUDAGraph | None = None
    _examples: Tensor
    _result: Tensor

    @cached_property
    def _stream(self) -> torch.cuda.Stream:
        return torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]

    def __call__(self, examples: Tensor, rate: float) -> Tensor:
        self._set(rate)
        if self._warm < _WARM_UP:
            self._warm += 1
            return self._beside(examples)
        graph = self._graph or self._record(examples)
        self._examples.copy_(examples)
        graph.replay()
        return self._result

    def _beside(self, examples: Tensor) -> Tensor:
        """Update eagerly, on the stream that recording will use."""
        here = torch.cuda.current_stream(self.device)
        self._stream.wait_stream(here)
        with torch.cuda.stream(self._stream):
            loss = self._update(examples)
        here.wait_stream(self._stream)
        return loss

    def _record(self, examples: Tensor) -> torch.cuda.CUDAGraph:
        self._examples = examples.clone()
        self.optimiser.zero_grad(set_to_none=True)  # so that the gradients live in the graph's own memory
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, stream=self._stream):
            self._result = self._update(self._examples)
        return self._graph


def chosen_precision(name: str, device: torch.device) -> str:
    """Return the precision of that name; "auto" is the fastest that costs no accuracy, float32 on a CPU."""
    return name if name != "auto" else "mixed" if device.type == "cuda" else "float32"


@contextmanager
def _precision(name: str, device: str) -> Iterator[None]:
    """Compute in float32; in tf32, whose products on a GPU keep 10 bits, for mixed too; or by autocast to bfloat16."""
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    rounded = name in ("tf32", "mixed")
    torch.set_float32_matmul_precision("high" if rounded else "highest")
    torch.backends.cudnn.allow_tf32 = rounded
    try:
        # A cache of cast weights would outlive their CUDA graph.
        with torch.autocast(device, torch.bfloat16, enabled=name == "bfloat16", cache_enabled=False):
            yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.backends.cudnn.allow_tf32 = convolutions


@contextmanager
def deterministic(wanted: bool) -> Iterator[None]:
    """Let torch take only algorithms that give the same bits every time, and refuse where it has none."""
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark = torch.backends.cudnn.benchmark
    if wanted:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # cuBLAS asks for it
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark = benchmark
