"""The two figures that explain the model, drawn from code: `python tools/figures.py [folder]`.

What the paper shows in `fig:method_overview` and `fig:link_pred`, drawn anew: how a layer of CompGCN makes the vectors
of entities and of relations, and how links are predicted with them.
"""

from __future__ import annotations

import sys
from pathlib import Path
from xml.sax.saxutils import escape

FOLDER = Path(__file__).parent.parent / "docs" / "figures"
CELL, CELLS = 15, 4  # pixels of a number of a vector, and how many it has

# Each kind of thing has a class, which is a colour on a light and on a dark page; the background is drawn too, so that
# letters can be read where the page and the picture disagree on which it is.
LIGHT = {"back": "#ffffff", "ink": "#1f2328", "soft": "#59636e", "entity": "#57606a", "relation": "#a3468a"}
LIGHT |= {"original": "#0072b2", "inverse": "#c04f00", "loop": "#007d5a"}
DARK = {"back": "#0d1117", "ink": "#e6edf3", "soft": "#9198a1", "entity": "#aeb8c2", "relation": "#e59bd0"}
DARK |= {"original": "#58b4ec", "inverse": "#f5a15c", "loop": "#46c89b"}


# Pieces


def _style() -> str:
    def rules(colours: dict[str, str]) -> str:
        return "".join(
            f".{name}{{fill:{colour};stroke:{colour};color:{colour}}}"
            if name != "back"
            else f".back{{fill:{colour};stroke:none}}"
            for name, colour in colours.items()
        )

    fixed = (
        "text{font:13px system-ui,sans-serif;stroke:none!important}.small{font-size:11px}.bold{font-weight:600}"
        ".math{font-style:italic;font-family:Georgia,serif;font-size:16px}.edge{fill:none!important;stroke-width:1.8}"
        ".thin{stroke-width:1}.dash{stroke-dasharray:5 4}.frame{fill:none!important;stroke-width:1.2}"
    )
    return f"<style>{fixed}{rules(LIGHT)}@media(prefers-color-scheme:dark){{{rules(DARK)}}}</style>"


def _heads() -> str:
    """An arrowhead for each colour."""
    shape = '<path d="M0 0 8 4 0 8z" stroke="none"/>'
    size = 'viewBox="0 0 8 8" markerWidth="8" markerHeight="8" markerUnits="userSpaceOnUse"'
    place = f'{size} refX="7" refY="4" orient="auto"'
    return "".join(f'<marker id="{kind}" class="{kind}" {place}>{shape}</marker>' for kind in LIGHT if kind != "back")


def picture(width: int, height: int, title: str, parts: list[str]) -> str:
    """A whole file."""
    size = f'width="{width}" height="{height}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" {size} role="img">'
    back = f'<rect class="back" {size} rx="8"/>'
    lines = [head, f"<title>{escape(title)}</title>", _style(), f"<defs>{_heads()}</defs>", back, *parts, "</svg>"]
    return "\n".join(lines) + "\n"


def text(x: float, y: float, words: str, kind: str = "ink", anchor: str = "middle") -> str:
    """Words on a line; those in {} are set lower."""
    made = ""
    for k, piece in enumerate(words.replace("}", "{").split("{")):
        if k % 2:
            made += f'<tspan dy="4" font-size="11">{escape(piece)}</tspan>'
        elif piece:  # back on the line
            made += f'<tspan dy="-4">{escape(piece)}</tspan>' if k else escape(piece)
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">{made}</text>'


def arrow(path: str, kind: str, more: str = "") -> str:
    """A line with a head, along an SVG path."""
    return f'<path class="edge {kind} {more}" d="{path}" marker-end="url(#{kind})"/>'.replace(' "', '"')


def node(x: float, y: float, name: str, above: bool = True, bold: bool = False) -> str:
    """An entity of a graph."""
    size = 9 if bold else 7
    label = text(x, y - 15 if above else y + 24, name, "ink bold" if bold else "ink")
    return f'<circle class="entity" cx="{x:g}" cy="{y:g}" r="{size}"/>{label}'


def vector(x: float, y: float, kind: str, seed: int) -> str:
    """A row of cells, shaded by the numbers that might stand in them."""
    shades = [0.25 + 0.17 * ((seed * (k + 2) + k * k) % 5) for k in range(CELLS)]
    cells = [
        f'<rect x="{x + k * CELL:g}" y="{y:g}" width="{CELL}" height="{CELL}" fill-opacity="{shade:.2f}"/>'
        for k, shade in enumerate(shades)
    ]
    return f'<g class="{kind} thin">{"".join(cells)}</g>'


def box(x: float, y: float, width: float, height: float, words: list[str], kind: str, style: str = "") -> str:
    """A frame with lines of words in it."""
    middle = y + height / 2 + 5 - 8.5 * (len(words) - 1)
    lines = [text(x + width / 2, middle + 17 * k, line, f"{kind} {style}".strip()) for k, line in enumerate(words)]
    frame = f'<rect class="{kind} frame" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="5"/>'
    return frame + "".join(lines)


def circle(x: float, y: float, sign: str, kind: str = "ink") -> str:
    """An operation, by its sign."""
    return f'<circle class="{kind} frame" cx="{x:g}" cy="{y:g}" r="13"/>{text(x, y + 5, sign, f"{kind} math")}'


def heading(x: float, number: int, words: str) -> str:
    """What a column of a figure shows."""
    return text(x, 32, f"{number}  {words}", "ink bold", "start")


# Overview

MESSAGES = (  # sender, relation, direction, filter
    ("Spain", "borders", "original", "W{O}"),
    ("Paris", "in country", "original", "W{O}"),
    ("Europe", "on continent⁻¹", "inverse", "W{I}"),
    ("France", "self-loop ⊤", "loop", "W{S}"),
)


def overview() -> str:
    """One layer: edges of three kinds, composed, filtered by kind and summed; relations have a filter of their own."""
    parts = [heading(24, 1, "Edges that reach France"), heading(318, 2, "Compose"), heading(570, 3, "Filter")]
    parts += [heading(700, 4, "Sum up"), *_edges()]
    for row, (sender, relation, direction, weights) in enumerate(MESSAGES):
        y = 92 + 78 * row
        parts += [
            text(348, y - 15, sender, "entity small"),
            vector(318, y - 8, "entity", 3 * row + 1 if row < 3 else 5),
            circle(408, y, "φ"),
            text(468, y - 15, relation, "relation small"),
            vector(438, y - 8, "relation", 2 * row + 1),
            arrow(f"M508 {y}H562", direction),
            box(566, y - 15, 52, 30, [weights], direction, "math"),
            arrow(f"M622 {y}C660 {y} 668 {209 + 4 * (row - 1.5):g} 706 {209 + 2 * (row - 1.5):g}", direction),
        ]
    parts += [
        circle(722, 209, "Σ"),
        arrow("M738 209H764", "ink"),
        box(768, 194, 34, 30, ["f"], "ink", "math"),
        arrow("M806 209H836", "ink"),
        vector(842, 201, "entity", 8),
        text(872, 190, "France, anew", "entity small"),
        text(468, 399, "every relation", "relation small"),
        vector(438, 406, "relation", 4),
        arrow("M508 414H562", "relation"),
        box(566, 399, 52, 30, ["W{rel}"], "relation", "math"),
        arrow("M622 414H836", "relation"),
        vector(842, 406, "relation", 9),
        text(872, 395, "for the next layer", "relation small"),
        text(930, 262, "h{v} = f ( Σ W{λ(r)} φ(x{u} , z{r} ) )", "ink math", "end"),
        text(930, 452, "h{r} = W{rel} z{r}", "ink math", "end"),
    ]
    title = "One layer of CompGCN: messages over original, inverse and self-loop edges, and the update of relations"
    return picture(950, 474, title, parts)


def _edges() -> list[str]:
    """The small graph of the overview, and what its colours mean."""
    legend = [("original", "an edge as it stands in the data"), ("inverse", "the same edge, backwards")]
    legend.append(("loop", "the entity itself"))
    made = [
        arrow("M61 99C75 150 105 190 134 207", "original"),
        text(72, 158, "borders", "original small", "end"),
        arrow("M228 99C215 145 190 185 160 205", "original"),
        text(216, 158, "in country", "original small", "start"),
        arrow("M140 226C118 250 88 280 72 314", "soft", "thin"),
        text(66, 262, "on continent", "soft small"),
        arrow("M84 318C120 300 142 262 146 231", "inverse", "dash"),
        text(142, 288, "on continent⁻¹", "inverse small", "start"),
        arrow("M158 220C215 262 225 175 161 211", "loop"),
        text(238, 222, "self-loop", "loop small"),
        *(node(58, 92, "Spain"), node(232, 92, "Paris"), node(70, 324, "Europe", above=False)),
        node(147, 214, "", bold=True),
        text(147, 192, "France", "ink bold"),
    ]
    for row, (kind, words) in enumerate(legend):
        y = 392 + 21 * row
        made += [
            arrow(f"M24 {y}H54", kind, "dash" if kind == "inverse" else ""),
            text(64, y + 4, words, "soft small", "start"),
        ]
    return made


# Link prediction

ENTITIES = ("France", "Spain", "Paris", "Europe", "Germany")
RELATIONS = ("borders", "in country", "on continent", "and their inverses")
SCORES = (("Spain", 92), ("Germany", 84), ("Europe", 40), ("Paris", 22), ("France", 8))


def link_prediction() -> str:
    """The graph becomes vectors of entities and relations once; a decoder scores every entity as the missing end."""
    parts = [heading(24, 1, "A graph with gaps"), heading(234, 2, "Encode once"), heading(436, 3, "Vectors of both")]
    parts += [heading(608, 4, "Decode"), heading(766, 5, "Score every entity"), *_gaps()]
    parts += [arrow("M196 190H228", "ink"), box(234, 140, 140, 100, ["CompGCN", "K layers"], "ink", "bold")]
    parts += [
        arrow("M378 176C400 170 404 134 424 134", "entity"),
        arrow("M378 206C400 212 404 306 424 306", "relation"),
    ]
    for row, name in enumerate(ENTITIES):
        y = 66 + 27 * row
        parts += [vector(436, y, "entity", 3 * row + 2), text(504, y + 12, name, "entity small", "start")]
    for row, name in enumerate(RELATIONS):
        y = 258 + 27 * row
        parts += [vector(436, y, "relation", 2 * row + 3), text(504, y + 12, name, "relation small", "start")]
    parts += [
        *(arrow("M552 74C590 74 588 176 614 182", "entity"), arrow("M552 266C590 266 588 212 614 206", "relation")),
        box(618, 158, 110, 72, ["query", "q(s, r)"], "ink"),
        arrow("M732 194H757", "ink"),
        text(673, 252, "any decoder: TransE,", "soft small"),
        text(673, 267, "DistMult, ConvE, …", "soft small"),
        text(766, 62, "France – borders – ?", "ink", "start"),
    ]
    for row, (name, score) in enumerate(SCORES):
        y, kind = 92 + 42 * row, "original" if row < 2 else "soft"
        bar = f'x="766" y="{y + 6}" width="{1.5 * score:g}" height="11" rx="2" fill-opacity="0.85"'
        parts += [text(766, y, name, "ink small", "start"), f'<rect class="{kind}" {bar}/>']
    parts.append(text(766, 316, "similarity of the query with", "soft small", "start"))
    parts.append(text(766, 331, "the vector of each entity", "soft small", "start"))
    title = "Link prediction: a graph becomes vectors of entities and relations, and a decoder scores all entities"
    return picture(950, 384, title, parts)


def _gaps() -> list[str]:
    """A small graph, one fact of it missing."""
    return [
        arrow("M53 113C70 145 80 160 98 178", "ink", "thin"),
        text(62, 148, "borders", "soft small", "end"),
        arrow("M170 111C160 140 140 165 120 180", "ink", "thin"),
        text(162, 148, "in country", "soft small", "start"),
        arrow("M104 198C96 225 76 255 66 280", "ink", "thin"),
        text(82, 232, "on continent", "soft small", "end"),
        arrow("M116 198C130 225 155 255 170 278", "original", "dash"),
        text(148, 232, "borders?", "original small", "start"),
        *(node(48, 106, "Spain"), node(173, 104, "Paris"), node(62, 288, "Europe", above=False)),
        node(176, 286, "Germany", above=False),
        node(109, 189, "", bold=True),
        text(126, 194, "France", "ink bold", "start"),
    ]


FIGURES = {"overview.svg": overview, "link-prediction.svg": link_prediction}

if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in FIGURES.items():
        (folder / name).write_text(draw(), encoding="utf-8")
        print(f"written: {folder / name}")
