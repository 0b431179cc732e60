"""Settings every test shares: properties are drawn from a fixed sequence, so that a failure is the same everywhere.

The processes of the suite share the cores, so each keeps to one thread: several pools on the same cores only wait for
each other.
"""

from __future__ import annotations

import numba
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)
numba.set_num_threads(1)

settings.register_profile(
    "repeatable",
    derandomize=True,
    database=None,
    deadline=None,  # the first call of a kernel compiles it
    max_examples=50,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
