"""What every figure shares: its file, its style, and panels side by side.

Colours are those of Okabe and Ito, which colour-blind people tell apart too.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from compgcn.errors import InputError

Panel = Callable[[Any], None]  # draws on the axes it is given

COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
INK, FAINT = "#333333", "#DDDDDD"
DARK = "#222222"  # on a light colour, also where the page is dark
_ENDINGS = (".png", ".pdf", ".svg")
BARS = 15  # at most so many bars with a name each
THIN = 5  # bars are as thin as if there were so many
_LETTERS = 32  # of a name beside a bar
PANEL = (6.4, 4.2)  # inches
_STYLE: Any = {
    "font.size": 10,
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "text.color": INK,
    "text.parse_math": False,  # a $ in a name is a $
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "grid.linewidth": 0.6,
    "svg.hashsalt": "compgcn",  # the same figure has the same bytes
}

_INLINE: Any = {"svg.fonttype": "none", "figure.facecolor": "none", "axes.facecolor": "none"}


def check_figure(path: str | Path) -> Path:
    """The path of a figure to be, refused before any work is done for it."""
    path = Path(path)
    if path.suffix.lower() not in _ENDINGS:
        raise InputError(f"a figure is a .png, .pdf or .svg file, not '{path.name}'")
    if not path.parent.is_dir():
        raise InputError(f"there is no folder '{path.parent}' to put '{path.name}' in; make it first")
    if path.exists() and not path.is_file():
        raise InputError(f"'{path}' exists and is not a file that could be replaced; choose another name")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        raise InputError("figures are drawn with matplotlib: pip install 'compgcn[plot]'") from None
    return path


def save(panels: Sequence[Panel], title: str, path: Path, height: float = PANEL[1]) -> None:
    """Panels two or three abreast under a title; nothing is written before all is drawn."""
    drawn = _drawn(panels, title, path.suffix.lower()[1:], height)
    try:
        path.write_bytes(drawn)
    except OSError as error:
        raise InputError(f"could not write {path}: {error.strerror}") from None


def inline(panel: Panel, mark: str, height: float = PANEL[1]) -> str:
    """A panel as an <svg> element for a page, whose colours and letters it takes.

    Args:
        panel: draws on the axes it is given.
        mark: before every id in it, which must be unique in a page.
        height: of the panel in inches.
    """
    text = _drawn([panel], "", "svg", height, _INLINE).decode()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :], flags=re.DOTALL)
    text = re.sub(r'(<svg\b[^>]*?) width="[^"]*"', r"\1", re.sub(r'(<svg\b[^>]*?) height="[^"]*"', r"\1", text))
    text = re.sub(r'( id="|url\(#|href="#)', rf"\g<1>{mark}", text)
    text = re.sub(r"'DejaVu Sans'[^;\"]*", "system-ui, sans-serif", text)
    return text.replace(INK, "currentColor").replace(FAINT.lower(), "var(--line)").strip()


def _drawn(
    panels: Sequence[Panel], title: str, form: str, height: float, style: Mapping[str, Any] | None = None
) -> bytes:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    columns = len(panels) if len(panels) <= 3 else 2 if len(panels) == 4 else 3
    rows = -(-len(panels) // columns)
    with matplotlib.rc_context(_STYLE | dict(style or {})):
        spaces = ConstrainedLayoutEngine(w_pad=0.15, h_pad=0.15, hspace=0.04, wspace=0.04)
        size = (PANEL[0] * columns, height * rows + (0.5 if title else 0))
        figure = Figure(figsize=size, layout=spaces)
        grid = figure.subplots(rows, columns, squeeze=False).ravel()
        for axes, panel in zip(grid, panels, strict=False):
            panel(axes)
        for axes in grid[len(panels) :]:
            axes.set_axis_off()
        if title:
            figure.suptitle(title, fontsize=13, fontweight="bold", x=0.01, ha="left")
        drawn = io.BytesIO()
        figure.savefig(drawn, format=form, dpi=150, metadata={"Date": None} if form == "svg" else None)
    return drawn.getvalue()


def thousands(axis: Any) -> None:
    """Ticks as 10,000 and not as powers of ten."""
    from matplotlib.ticker import FuncFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}" if value == round(value) else ""))


def heading(axes: Any, title: str, subtitle: str = "") -> None:
    """A bold title, and under it one faint line."""
    axes.set_title(title, pad=20 if subtitle else 8)
    if subtitle:
        axes.text(0, 1.02, subtitle, transform=axes.transAxes, fontsize=9, alpha=0.75)


def short(name: str, letters: int = _LETTERS) -> str:
    """A name that fits beside a bar: its start and its end."""
    clean = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name)
    half = letters // 2
    return clean if len(clean) <= letters else f"{clean[: half - 1]}…{clean[-half:]}"
