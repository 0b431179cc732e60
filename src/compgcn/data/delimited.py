"""Delimited text, read at speed: columns of strings, or the first line that is wrong.

`scan` is the definition, line by line; `columns` is the fast way to the same table and turns to `scan` whenever
something is not right, so that the error can name the line.
"""

from __future__ import annotations

import csv
import gzip
import zipfile
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

from compgcn.errors import InputError

_DELIMITERS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
_BROKEN = (OSError, EOFError, zlib.error, zipfile.BadZipFile)
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True)
class Text:
    """Delimited text somewhere: what to call it in an error, how to open it, and what separates its fields."""

    label: str
    open: Callable[[], Any]
    delimiter: str = "\t"

    @property
    def quoted(self) -> bool:
        """Comma-separated fields may be quoted; tab-separated ones are taken as they stand."""
        return self.delimiter == ","


def file(path: str | Path) -> Text:
    """A file on disk, its format told by its ending: .tsv, .txt or .csv, each possibly followed by .gz."""
    path = Path(path)
    if path.is_dir():
        raise InputError(f"'{path}' is a folder; give a file of triples, or train=, valid= and test= files in it")
    if not path.exists():
        raise InputError(f"there is no file '{path}'")
    endings = [suffix.lower() for suffix in path.suffixes[-2:]]
    zipped = bool(endings) and endings[-1] == ".gz"
    if zipped:
        endings.pop()
    if not endings or endings[-1] not in _DELIMITERS:
        raise InputError(f"cannot tell the format of '{path}'; expected a name ending in .tsv, .txt or .csv (or .gz)")
    return Text(str(path), partial(gzip.GzipFile if zipped else open, path, "rb"), _DELIMITERS[endings[-1]])


def member(archive: str | Path, name: str) -> Text:
    """A tab-separated member of a zip archive, read in place."""
    archive = Path(archive)

    def opener() -> IO[bytes]:
        try:
            return zipfile.ZipFile(archive).open(name)
        except KeyError:
            raise InputError(f"the archive '{archive}' has no member '{name}'") from None

    return Text(f"{archive}/{name}", opener)


def columns(text: Text, width: int, *, allow_empty: bool = False) -> list[Any]:
    """The columns of a table of strings, as dictionary-encoded pyarrow chunked arrays.

    Args:
        text: what to read; blank lines are skipped, and so is a byte order mark.
        width: the number of fields every line must have.
        allow_empty: whether a field may be empty.
    """
    import pyarrow as pa  # here, not above: the embedded graph needs none of it

    try:
        table = _parse(text, width)
        if len(table) and (allow_empty or not any(_has_blank(column) for column in table.columns)):
            return list(table.columns)
    except (pa.ArrowException, UnicodeDecodeError, *_BROKEN):
        pass  # the line by line reading below says what is wrong, and where
    rows = [row for _, row in scan(text, width, allow_empty=allow_empty)]
    return [pa.chunked_array([pa.array(values).dictionary_encode()]) for values in zip(*rows, strict=True)]


def _parse(text: Text, width: int) -> Any:
    import pyarrow as pa
    from pyarrow import csv as arrow

    names = [str(i) for i in range(width)]
    with text.open() as stream:
        return arrow.read_csv(
            stream,
            read_options=arrow.ReadOptions(column_names=names, block_size=1 << 24),
            parse_options=arrow.ParseOptions(
                delimiter=text.delimiter,
                quote_char='"' if text.quoted else False,
                newlines_in_values=text.quoted,
            ),
            convert_options=arrow.ConvertOptions(
                column_types=dict.fromkeys(names, pa.dictionary(pa.int32(), pa.string())),
                strings_can_be_null=False,
            ),
        )


def _has_blank(column: Any) -> bool:
    """Whether a field is empty or nothing but spaces; only the distinct values are looked at."""
    import pyarrow.compute as pc

    return any(pc.any(pc.equal(pc.ascii_trim(chunk.dictionary, " "), "")).as_py() for chunk in column.chunks)


def scan(text: Text, width: int, *, allow_empty: bool = False) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each line, one at a time; an InputError at the first that is wrong, or if none is."""
    found = False
    for number, fields in _records(text):
        if len(fields) != width:
            many = "column" if len(fields) == 1 else "columns"
            raise _wrong(text, number, f"expected {width} columns, found {len(fields)} {many}{_hint(text, fields)}")
        if not allow_empty:
            for position, field in enumerate(fields, start=1):
                if not field.strip(" "):
                    raise _wrong(text, number, f"column {position} is empty")
        found = True
        yield number, fields
    if not found:
        raise InputError(f"'{text.label}' is empty: expected lines of {width} columns, found none")


def _wrong(text: Text, number: int, what: str) -> InputError:
    return InputError(f"'{text.label}', line {number}: {what}")


def _hint(text: Text, fields: list[str]) -> str:
    """What a line with one column too few separators is most often: the other kind of file."""
    if len(fields) != 1:
        return ""
    if text.quoted:
        return " (fields are separated by commas in a .csv file)"
    return " (fields are separated by tabs; a file with commas must be named .csv)"


def _records(text: Text) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields, blank lines left out."""
    if text.quoted:
        yield from _quoted_records(text)
        return
    for number, line in _lines(text):
        if line.strip(" \r\n"):
            yield number, line.rstrip("\r\n").split("\t")


def _quoted_records(text: Text) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader((line for _, line in _lines(text)), strict=True)
    start = 1
    try:
        for fields in reader:
            if len(fields) > 1 or (fields and fields[0].strip(" ")):
                yield start, fields
            start = reader.line_num + 1
    except csv.Error as error:
        raise _wrong(text, start, f"not comma-separated values: {error}") from None


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
                        what = f"byte {error.start + 1} is not UTF-8; save the file as UTF-8"
                        raise _wrong(text, number, what) from None
    except _BROKEN as error:
        raise InputError(f"'{text.label}' cannot be read: {error}") from None
