"""Delimited text, read at speed: columns of strings, or the first line that is wrong.

`scan` is the definition, line by line; `columns` is the fast way to the same table and turns to `scan` whenever
something is not right, so that the error can name the line.
"""

from __future__ import annotations

import csv
import shlex
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from compgcn.data.columns import Columns, Facts, endings, existing, locate, named_places, unpacked
from compgcn.errors import InputError

DELIMITERS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
BROKEN = (OSError, EOFError, zlib.error)
_BOM = b"\xef\xbb\xbf"
_WIDE = (b"\xff\xfe", b"\xfe\xff")  # what UTF-16 begins with
_GRAPH = "graph"  # what a table of many graphs calls its first column
_OTHERS = {"\t": "tabs", ",": "commas", ";": "semicolons", " ": "spaces"}


@dataclass(frozen=True)
class Text:
    """Delimited text somewhere.

    Args:
        label: what to call it in an error.
        open: opens it, as bytes.
        delimiter: what separates its fields.
        columns: names or positions of subject, relation and object; by default it has these three columns.
        comment: lines that start with it are skipped.
        header: whether a first line that only names the columns is looked for.
        path: the file it is, if it is one.
    """

    label: str
    open: Callable[[], Any]
    delimiter: str = "\t"
    columns: Columns | None = None
    comment: str | None = None
    header: bool = False
    path: Path | None = None

    @property
    def quoted(self) -> bool:
        """Comma-separated fields may be quoted; tab-separated ones are taken as they stand."""
        return self.delimiter == ","

    def facts(self) -> Facts:
        """The triples; a first line that names the columns is skipped, and said so."""
        if self.columns is None:
            width, take = 3, [0, 1, 2]
        else:
            header = first(self)
            width, take = len(header), locate(self.label, self.columns, header)
        found = columns(self, width, take=take)
        notes: tuple[str, ...] = ()
        if not self.quoted and _all_quoted(found):  # as spreadsheets write it
            found = [_unquoted(column) for column in found]
            notes = (f"every field of '{self.label}' stands in double quotes, which were taken off",)
        named = self.columns is not None and isinstance(self.columns[0], str)
        places = named_places([column[0].as_py() for column in found]) if self.header and not named else None
        if not named and places is None:
            return Facts(found, notes, guessed=self.header)
        if self.columns is None and places is not None:  # else what was asked for goes before what the line says
            found = [found[place] for place in places]
        found = [column.slice(1) for column in found]
        if not len(found[0]):
            raise InputError(f"'{self.label}' is empty: it holds a header and no triple")
        return Facts(found, (*notes, f"the first line of '{self.label}' names the columns and was skipped"))


def file(path: str | Path, *, columns: Columns | None = None, comment: str | None = None, header: bool = False) -> Text:
    """A file on disk, its format told by its ending: .tsv, .txt or .csv, each possibly followed by .gz or .zst."""
    path = existing(path)
    ending, _ = endings(path)
    if ending not in DELIMITERS:
        raise InputError(
            f"cannot tell the format of '{path}'; expected a name ending in .tsv, .txt or .csv (or .gz, .zst)"
        )
    return Text(str(path), partial(unpacked, path), DELIMITERS[ending], columns, comment or None, header, path)


def first(text: Text) -> list[str]:
    """The fields of the first line."""
    for _, fields in _records(text):
        return fields
    raise InputError(f"'{text.label}' is empty")


def columns(text: Text, width: int, *, take: Sequence[int] | None = None, allow_empty: bool = False) -> list[Any]:
    """The columns of a table of strings, as pyarrow chunked arrays.

    Args:
        text: what to read; blank lines are skipped, and so is a byte order mark.
        width: the number of fields every line must have.
        take: the positions of the columns wanted; all of them by default.
        allow_empty: whether a field may be empty.
    """
    import pyarrow as pa  # here, not above: the embedded graph needs none of it

    take = range(width) if take is None else take
    try:
        table = _parse(text, width, take)
        blank = not allow_empty and any(_has_blank(column) for column in table.columns)
        # A quote that is never closed looks like one; only the reading below tells them apart.
        several_lines = text.quoted and any(_has_line_end(column) for column in table.columns)
        if len(table) and not blank and not several_lines:
            return list(table.columns)
    except (pa.ArrowException, UnicodeDecodeError, *BROKEN):
        pass  # the line by line reading below says what is wrong, and where
    rows = [row for _, row in scan(text, width, take=take, allow_empty=allow_empty)]
    return [pa.chunked_array([pa.array(values, pa.string())]) for values in zip(*rows, strict=True)]


def _parse(text: Text, width: int, take: Sequence[int]) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    if text.comment and text.quoted:
        raise pa.ArrowInvalid("a line inside quotes may look like a comment; only a reading in order can tell")
    names = [str(i) for i in range(width)]
    wanted = [names[i] for i in take]
    with _source(text) as stream:
        return arrow.read_csv(
            stream,
            read_options=arrow.ReadOptions(column_names=names, block_size=1 << 24),
            parse_options=arrow.ParseOptions(
                delimiter=text.delimiter,
                quote_char='"' if text.quoted else False,
                newlines_in_values=text.quoted,
            ),
            convert_options=arrow.ConvertOptions(
                include_columns=wanted,
                column_types=dict.fromkeys(wanted, pa.string()),
                strings_can_be_null=False,
            ),
        )


def _source(text: Text) -> Any:
    """The text as a stream of pyarrow's own, whose threads must never wait for Python's."""
    import pyarrow as pa

    if text.path is not None and not text.comment:
        packing = {".gz": "gzip", ".zst": "zstd"}.get(endings(text.path)[1])
        return pa.input_stream(str(text.path), compression=packing)
    with text.open() as stream:
        content = stream.read()
    if text.comment:
        comment = text.comment.encode()
        lines = content.removeprefix(_BOM).splitlines(keepends=True)
        content = b"".join(b"\n" if line.startswith(comment) else line for line in lines)
    return pa.BufferReader(content)


def _has_blank(column: Any) -> bool:
    """Whether a field is empty or nothing but spaces."""
    import pyarrow.compute as pc

    spaced = column.filter(pc.starts_with(column, " "))
    empty = pc.min(pc.binary_length(column)).as_py() == 0
    return empty or bool(pc.any(pc.equal(pc.ascii_trim(spaced, " "), "")).as_py())


def _all_quoted(columns: Sequence[Any]) -> bool:
    """Whether every field stands in double quotes with something between them."""
    import pyarrow.compute as pc

    def quoted(column: Any) -> bool:
        return bool(pc.all(pc.match_substring_regex(column, '^"([^"]|"")+"$')).as_py())

    if not all(str(column[0]).startswith('"') for column in columns):  # which settles it for nearly every file
        return False
    return all(quoted(column) for column in columns)


def _unquoted(column: Any) -> Any:
    """The fields without the quotes around them; one inside is written twice."""
    import pyarrow.compute as pc

    return pc.replace_substring(pc.utf8_slice_codeunits(column, 1, -1), '""', '"')


def _has_line_end(column: Any) -> bool:
    """Whether a field goes on over the end of a line."""
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(column, "[\r\n]")).as_py())


def scan(
    text: Text, width: int, *, take: Sequence[int] | None = None, allow_empty: bool = False
) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each line, one at a time; an InputError at the first that is wrong, or if none is."""
    take = range(width) if take is None else take
    found = False
    for number, fields in _records(text):
        if len(fields) != width:
            many = "column" if len(fields) == 1 else "columns"
            hint = _hint(text, number, fields, width)
            raise _wrong(text, number, f"expected {width} columns, found {len(fields)} {many}{hint}")
        chosen = [fields[i] for i in take]
        if not allow_empty:
            for position, field in zip(take, chosen, strict=True):
                if not field.strip(" "):
                    raise _wrong(text, number, f"column {position + 1} is empty")
        found = True
        yield number, chosen
    if not found:
        raise InputError(f"'{text.label}' is empty: expected lines of {width} columns, found none")


def _wrong(text: Text, number: int, what: str) -> InputError:
    return InputError(f"'{text.label}', line {number}: {what}")


def _hint(text: Text, number: int, fields: list[str], width: int) -> str:
    """What a line with another number of columns most often is: separated otherwise, or one with more to it."""
    if len(fields) > width and number == 1 and text.header:
        graphs = "for a table of graphs say --task graph-classification, else " if _GRAPH in _plain(fields) else ""
        which = f"keep {width}, or say with columns= (--columns of train) which to read"
        return f"; {graphs}{which}, by name or by position from 0 on"
    whole = text.delimiter.join(fields)
    other = next((mark for mark in _OTHERS if mark != text.delimiter and len(whole.split(mark)) == width), None)
    if other == " " and 1 < len(fields) < width:  # it has the right separator, a name with a space and a field too few
        other = None
    seen = f"; this line looks separated by {_OTHERS[other]}" if other else ""
    if len(fields) != 1:
        return f" ({seen.removeprefix('; ')})" if seen else ""
    if text.quoted:
        return f" (fields are separated by commas in a .csv file{seen})"
    return f" (fields are separated by tabs; a file with commas must be named .csv{seen})"


def _plain(fields: list[str]) -> list[str]:
    return [field.strip().casefold() for field in fields]


def _records(text: Text) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields, blank lines left out."""
    if text.quoted:
        yield from _quoted_records(text)
        return
    for number, line in _lines(text):
        if line.strip(" \r\n") and not (text.comment and line.startswith(text.comment)):
            yield number, line.rstrip("\r\n").split("\t")


def _quoted_records(text: Text) -> Iterator[tuple[int, list[str]]]:
    start, inside = 1, False  # inside: a quoted field goes on over the end of its line

    def lines() -> Iterator[str]:
        nonlocal inside
        for _, line in _lines(text):
            skipped = not inside and text.comment is not None and line.startswith(text.comment)
            inside = not skipped
            yield "\n" if skipped else line

    reader = csv.reader(lines(), strict=True)
    bound = csv.field_size_limit(2**31 - 1)  # a field may be as long as it likes
    try:
        for fields in reader:
            inside = False
            if len(fields) > 1 or (fields and fields[0].strip(" ")):
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise _wrong(text, start, f"not comma-separated values: {error}") from None
    finally:
        csv.field_size_limit(bound)


def _utf_16(text: Text) -> InputError:
    how = f"iconv -f UTF-16 -t UTF-8 {shlex.quote(text.label)} > another file"
    return InputError(f"'{text.label}' is UTF-16, by its first two bytes; save it as UTF-8, or convert it with {how}")


def _lines(text: Text) -> Iterator[tuple[int, str]]:
    """Line number and decoded line with its end; LF, CRLF and CR all end a line."""
    number = 0
    try:
        with text.open() as stream:
            for physical in stream:
                for line in physical.splitlines(keepends=True):
                    number += 1
                    raw = line.removeprefix(_BOM) if number == 1 else line
                    try:
                        yield number, raw.decode()
                    except UnicodeDecodeError as error:
                        if number == 1 and line.startswith(_WIDE):
                            raise _utf_16(text) from None
                        what = f"byte {error.start + 1} is not UTF-8; save the file as UTF-8"
                        raise _wrong(text, number, what) from None
    except BROKEN as error:
        raise InputError(f"'{text.label}' cannot be read: {error}") from None
