"""Everything that takes long to load, imported once in the process that those of tests are forked from."""

import pandas  # noqa: F401 - by pyarrow
import torch
import torch._dynamo  # by every optimiser

import compgcn.answers.export
import compgcn.answers.score  # noqa: F401
import launched  # noqa: F401
from sharded import task_of

torch.set_num_threads(1)
task_of(None, {"decoder": "conve"}, "uneven").ranks("test")  # loads the kernels; a gradient would spoil a fork
