"""The device of a run."""

from __future__ import annotations

import torch

from compgcn.errors import InputError


def find_device(name: str) -> torch.device:
    """The device of that name; "auto" is the GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.zeros((), device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError):
        raise InputError(f"the device '{name}' is not there; use cpu, or auto for the best there is") from None
    return device
