"""Where what was fetched and what was parsed is kept."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path | None:
    """The folder COMPGCN_CACHE names, else that of the XDG convention; None where COMPGCN_CACHE is "off"."""
    given = os.environ.get("COMPGCN_CACHE", "")
    if given == "off":
        return None
    if given:
        return Path(given)
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if base else Path.home() / ".cache") / "compgcn"
