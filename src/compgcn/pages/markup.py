"""The parts of a page, and how they are written: as Markdown, or as one HTML file."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

from compgcn.tables import Table

_NUMBER = re.compile(r"[-−+±–.,%/ \d]*\d[-−+±–.,%/ \d]*|–")


class Verbatim(str):
    """Text from outside, such as a name: shown letter by letter, while other text has `code` and *emphasis* in it."""

    __slots__ = ()


class Figures(NamedTuple):
    """Drawings side by side: what each shows, in words, and an <svg> element."""

    drawings: list[tuple[str, str]]


class Listing(NamedTuple):
    """Lines of a file."""

    text: str


class Folded(NamedTuple):
    """Parts that a reader can unfold."""

    title: str
    parts: Sequence[Part]


Part: TypeAlias = "str | Table | Figures | Listing | Folded"


def markdown(parts: Sequence[str | Table]) -> str:
    """A page as Markdown."""
    texts = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
            continue
        cells = [[cell.replace("|", "\\|") for cell in line] for line in (part.header, *part.rows)]
        lines = ["| " + " | ".join(line) + " |" for line in cells]
        texts.append("\n".join([lines[0], "|" + "---|" * len(part.header), *lines[1:]]))
    return "\n\n".join(texts) + "\n"


# The colours of drawings follow those of the page: --line and the colour of text.
_STYLE = """
:root{color-scheme:light dark;--text:#1f2328;--soft:#59636e;--back:#fff;--line:#d8dee4;--wash:#f6f8fa}
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--soft:#9198a1;--back:#0d1117;--line:#3d444d;--wash:#151b23}}
body{font:15px/1.5 system-ui,sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem;color:var(--text);
background:var(--back)}
h1{font-size:1.7rem;line-height:1.25}h2{font-size:1.25rem;margin:2.2rem 0 .6rem;padding-bottom:.25rem;
border-bottom:1px solid var(--line)}h3{font-size:1.05rem}p{max-width:60rem}
.wide{overflow-x:auto;margin:1rem 0}table{border-collapse:collapse;font-size:14px}
td,th{padding:.3rem .8rem;text-align:left;border-bottom:1px solid var(--line);vertical-align:top;
overflow-wrap:break-word;min-width:3.5rem;max-width:26rem}td:first-child:not(.n){min-width:8rem}
th{font-weight:600;color:var(--soft)}th.n,td.n{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
tbody tr:hover{background:var(--wash)}img{max-width:100%;background:#fff}
code,pre{background:var(--wash);font-family:ui-monospace,monospace;font-size:.92em}code{padding:0 .2em}
pre{padding:.8rem 1rem;overflow-x:auto;line-height:1.4}
.figures{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,24rem),1fr));gap:1rem}
figure{margin:0;max-width:36rem}figure svg{display:block;width:100%;height:auto}
details{margin:1rem 0}summary{cursor:pointer;color:var(--soft)}
"""


def page_html(parts: Sequence[Part], name: str) -> str:
    """A page as one HTML file that needs nothing else but the pictures that it names."""
    style = " ".join(_STYLE.split("\n")).strip()
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{_shown(name)}</title><style>{style}</style>"
    )
    body = "\n".join(map(_part, parts))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>\n{body}\n</body></html>\n'


def _part(part: Part) -> str:
    match part:
        case Table():
            return _table(part)
        case Figures():
            drawn = [f'<figure role="img" aria-label="{_shown(text)}">{svg}</figure>' for text, svg in part.drawings]
            return f'<div class="figures">{"".join(drawn)}</div>'
        case Listing():
            return f"<pre>{html.escape(part.text)}</pre>"
        case Folded():
            inner = "\n".join(map(_part, part.parts))
            return f"<details><summary>{_inline(part.title)}</summary>\n{inner}\n</details>"
    if part.startswith("#") and not isinstance(part, Verbatim):
        marks, _, text = part.partition(" ")
        return f"<h{len(marks)}>{_inline(text)}</h{len(marks)}>"
    if part.startswith("![") and not isinstance(part, Verbatim):
        text, _, target = part[2:-1].partition("](")
        return f'<p><img src="{html.escape(target)}" alt="{html.escape(text)}"></p>'
    return f"<p>{_inline(part)}</p>"


def _table(table: Table) -> str:
    """Columns of numbers only are set to the right."""
    right = [
        bool(table.rows) and all(not row[k] or _is_number(row[k]) for row in table.rows)
        for k in range(len(table.header))
    ]

    def line(cells: Sequence[str], tag: str) -> str:
        marks = [' class="n"' if number else "" for number in right]
        made = [f"<{tag}{mark}>{_inline(cell)}</{tag}>" for mark, cell in zip(marks, cells, strict=True)]
        return f"<tr>{''.join(made)}</tr>"

    rows = "".join(line(cells, "td") for cells in table.rows)
    made = f"<table><thead>{line(table.header, 'th')}</thead><tbody>{rows}</tbody></table>"
    return f'<div class="wide">{made}</div>'


def _is_number(cell: str) -> bool:
    return not isinstance(cell, Verbatim) and _NUMBER.fullmatch(cell) is not None


def _shown(text: str) -> str:
    """Any text as HTML; characters that would turn or hide what stands beside them are replaced."""
    return html.escape("".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text))


def _inline(text: str) -> str:
    """`code` and *emphasis*."""
    if isinstance(text, Verbatim):
        return _shown(text)
    pieces = html.escape(text).split("`")
    made = [f"<code>{piece}</code>" if k % 2 else piece for k, piece in enumerate(pieces)]
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", "".join(made))
