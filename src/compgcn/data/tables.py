"""Tables in files, delimited text and Parquet, as columns of strings.

For text, `Text.scan` is the definition, line by line. `Text.read` is the fast way to the same table, and turns to
`scan` whenever something is wrong, so that the error can name the line.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from compgcn.data.columns import (
    DEFAULTS,
    HEADERS,
    PACKED,
    Columns,
    Facts,
    File,
    Library,
    Options,
    endings,
    existing,
    headless,
    pa,
    pc,
    picked,
    unpacked,
)
from compgcn.errors import InputError

T = TypeVar("T")
arrow, pq = Library("pyarrow.csv"), Library("pyarrow.parquet")

DELIMITERS = {".tsv": "\t", ".txt": "\t", ".csv": ","}
BROKEN = (OSError, EOFError)
_BATCH = 2**16  # rows of a Parquet file that are Python objects at a time
_BOM = b"\xef\xbb\xbf"
_SEPARATORS = {"\t": "tabs", ",": "commas", ";": "semicolons", " ": "spaces"}


class Text(File):
    """Text in UTF-8 with tabs, or with commas or semicolons and then perhaps quotes, between the fields."""

    @cached_property
    def delimiter(self) -> str:
        usual, comment = DELIMITERS[endings(self.path)[0]], self.options.comment or "\n"
        lines = self._lines() if usual == "," else iter(())
        first = next((line for line in lines if line.strip() and not line.startswith(comment)), "")
        plain = re.sub('"[^"]*"', "", first)
        return ";" if plain.count(";") > plain.count(",") else usual

    def header(self) -> list[str]:
        for _, fields in self._records():
            return fields
        raise InputError(f"'{self.label}' is empty")

    def facts(self) -> Facts:
        """Read the triples; skip a first line that names the columns."""
        found, notes = self.columns(HEADERS, self.options.columns)
        guessed = not notes
        if self.delimiter == "\t" and _all_quoted(found):  # as spreadsheets write it
            found = [pc.replace_substring(pc.utf8_slice_codeunits(column, 1, -1), '""', '"') for column in found]
            notes = (f"every field of '{self.label}' stands in double quotes, which were taken off", *notes)
        return Facts(found, notes, guessed=guessed)

    def part(self, number: int, of: int) -> Facts | None:
        """Read one of `of` parts of about equal size; return None if only the whole file tells how to read it."""
        if self.delimiter != "\t" or self.options.comment or endings(self.path)[1]:
            return None
        width, take, named = self._shape(HEADERS, self.options.columns)
        with self.path.open("rb") as file:
            first = file.readline()
            begin, end = (_line(file, self.path.stat().st_size * place // of) for place in (number, number + 1))
            file.seek(begin)
            rows = file.read(end - begin)
        try:  # every part begins with the first line, as pyarrow reads no empty file
            found = self._parse(width, take, first + rows if number else rows)
        except (pa.ArrowException, UnicodeDecodeError):
            return None
        body = [column[1:] for column in found] if named else found
        odd = not first.strip() or b"\r" in first.strip() or not len(body[0])
        if odd or any(map(_has_blank, body)) or _all_quoted(body):
            return None
        if number:
            return Facts([column[1:] for column in found])
        found, notes = headless(self.label, found, named)
        return Facts(found, notes, guessed=not notes)

    def columns(self, words: Sequence[set[str]], chosen: Columns | None = None) -> tuple[list[Any], tuple[str, ...]]:
        """Return the columns that `picked` tells, without a line that names them, and a note on that line."""
        width, take, named = self._shape(words, chosen)
        return headless(self.label, self.read(width, take), named)

    def lines(
        self, words: Sequence[set[str]] = HEADERS, chosen: Columns | None = None, *, allow_empty: bool = False
    ) -> Iterator[tuple[str, list[Any]]]:
        """Yield the place of each line, in words, with the fields of the columns that `picked` tells."""
        width, take, named = self._shape(words, chosen, allow_empty=allow_empty)
        for number, fields in islice(self.scan(width, take, allow_empty=allow_empty), int(named), None):
            yield f"line {number}", fields

    def _shape(
        self, words: Sequence[set[str]], chosen: Columns | None, *, allow_empty: bool = False
    ) -> tuple[int, list[int], bool]:
        """Return the number of columns, the positions of the wanted ones, and whether the first line names them."""
        header = self.header() if chosen else next(self.scan(len(words), allow_empty=allow_empty))[1]
        return len(header), *picked(self.label, header, chosen, words)

    def read(self, width: int, take: Sequence[int], *, allow_empty: bool = False) -> list[Any]:
        """Return the columns at these positions as pyarrow chunked arrays; every line has `width` fields."""
        try:
            found = self._parse(width, take)
            if len(found[0]) and (allow_empty or not any(map(_has_blank, found))):
                return found
        except (pa.ArrowException, UnicodeDecodeError, *BROKEN):
            pass  # the reading below names the line
        rows = [fields for _, fields in self.scan(width, take, allow_empty=allow_empty)]
        return [pa.chunked_array([pa.array(values, pa.string())]) for values in zip(*rows, strict=True)]

    def scan(
        self, width: int, take: Sequence[int] | None = None, *, allow_empty: bool = False
    ) -> Iterator[tuple[int, list[str]]]:
        """Yield the number and the fields of each line; raise an InputError at the first that is wrong."""
        take = range(width) if take is None else take
        empty = True
        for number, fields in self._records():
            if len(fields) != width:
                many = "column" if len(fields) == 1 else "columns"
                hint = self._hint(number, fields, width) or "; correct the line or leave it out"
                raise self._wrong(number, f"expected {width} columns, found {len(fields)} {many}{hint}")
            chosen = [fields[i] for i in take]
            blank = next((i for i, field in zip(take, chosen, strict=True) if not field.strip(" ")), None)
            if blank is not None and not allow_empty:
                raise self._wrong(number, f"column {blank + 1} is empty; fill it in or leave the line out")
            empty = False
            yield number, chosen
        if empty:
            raise InputError(f"'{self.label}' is empty: expected lines of {width} columns, found none")

    def _parse(self, width: int, take: Sequence[int], lines: bytes | None = None) -> list[Any]:
        if self.options.comment:
            raise pa.ArrowInvalid("pyarrow knows no comments")
        quoted = self.delimiter != "\t"
        names = [str(i) for i in range(width)]
        wanted = [names[i] for i in take]
        whole = self.label, PACKED.get(endings(self.path)[1])
        with pa.input_stream(*whole) if lines is None else pa.BufferReader(lines) as stream:
            table = arrow.read_csv(
                stream,
                read_options=arrow.ReadOptions(column_names=names, block_size=1 << 24),
                parse_options=arrow.ParseOptions(
                    delimiter=self.delimiter, quote_char='"' if quoted else False, newlines_in_values=quoted
                ),
                convert_options=arrow.ConvertOptions(
                    include_columns=wanted,
                    column_types=dict.fromkeys(wanted, pa.string()),
                    strings_can_be_null=False,
                ),
            )
        if quoted and any(pc.any(pc.match_substring_regex(column, "[\r\n]")).as_py() for column in table.columns):
            raise pa.ArrowInvalid("a quote that is never closed looks like this; only a strict reader can tell")
        return list(table.columns)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """Yield line numbers and fields, without blank lines and comments."""
        start, inside = 1, False  # inside: a quoted field continues after the end of its line

        def lines() -> Iterator[str]:
            nonlocal inside
            for line in self._lines():
                comment = not inside and bool(self.options.comment) and line.startswith(self.options.comment or "")
                inside = not comment
                yield "\n" if comment else line

        reader = csv.reader(
            lines(),
            delimiter=self.delimiter,
            quoting=csv.QUOTE_NONE if self.delimiter == "\t" else csv.QUOTE_MINIMAL,
            strict=True,
        )
        bound = csv.field_size_limit(2**31 - 1)
        try:
            for fields in reader:
                inside = False
                if len(fields) > 1 or (fields and fields[0].strip(" ")):
                    yield start, fields
                start = reader.line_num + 1
        except csv.Error as error:
            quote = "a quote is opened and never closed; close it, or double a quote that is part of the text"
            other = f"not separated by {_SEPARATORS[self.delimiter]}: {error}"
            raise self._wrong(start, quote if "unexpected end" in str(error) else other) from None
        finally:
            csv.field_size_limit(bound)

    def _lines(self) -> Iterator[str]:
        """Yield decoded lines with their ends; LF, CRLF and CR all end a line."""
        number = 0
        try:
            with unpacked(self.path) as stream:
                for physical in stream:
                    for line in physical.splitlines(keepends=True):
                        number += 1
                        yield (line.removeprefix(_BOM) if number == 1 else line).decode()
        except UnicodeDecodeError as error:
            wide = number == 1 and error.object.startswith((b"\xff\xfe", b"\xfe\xff"))
            what = "the text is UTF-16" if wide else f"byte {error.start + 1} is not UTF-8"
            raise self._wrong(number, f"{what}; save the file as UTF-8") from None
        except BROKEN as error:
            raise InputError(f"'{self.label}' cannot be read: {error}") from None

    def _wrong(self, number: int, what: str) -> InputError:
        return InputError(f"'{self.label}', line {number}: {what}")

    def _hint(self, number: int, fields: list[str], width: int) -> str:
        """Return the likely reason for another number of columns: more of them, or another separator."""
        if len(fields) > width and number == 1:
            graphs = [field.strip().casefold() for field in fields].count("graph")
            task = "for a table of graphs say --task graph-classification, else " if graphs else ""
            which = f"keep {width}, or say with columns= (train --columns) which to read"
            return f"; {task}{which}, by name or by position from 0 on"
        if len(fields) > 1:
            return ""
        others = [mark for mark in _SEPARATORS if mark != self.delimiter and len(fields[0].split(mark)) == width]
        seen = f"; this line looks separated by {_SEPARATORS[others[0]]}" if others else ""
        return f" (tabs separate fields in .tsv and .txt files, commas or semicolons in .csv files{seen})"


class Parquet(File):
    """Parquet file with ids in columns of strings or whole numbers."""

    def header(self) -> list[str]:
        names = list(self._opened.schema_arrow.names)
        if len(set(names)) < len(names):
            raise InputError(f"'{self.label}' has several columns of one name; give each its own")
        return names

    def facts(self) -> Facts:
        """Read the triples; whole numbers become text."""
        return Facts(self.read(picked(self.label, self.header(), self.options.columns)[0]))

    def part(self, number: int, of: int) -> Facts:
        """Read one of `of` parts with about as many row groups each."""
        groups, (places, _) = self._opened.num_row_groups, picked(self.label, self.header(), self.options.columns)
        return Facts(self.read(places, range(groups * number // of, groups * (number + 1) // of)))

    def lines(
        self, words: Sequence[set[str]] = HEADERS, chosen: Columns | None = None, *, allow_empty: bool = False
    ) -> Iterator[tuple[str, list[Any]]]:
        """Yield the place of each row, in words, with the ids in the columns that `picked` tells, or None for a gap."""
        header, number = self.header(), 0
        names = [header[place] for place in picked(self.label, header, chosen, words)[0]]
        try:
            for batch in self._opened.iter_batches(_BATCH, columns=names):
                columns = [self._texts(name, batch.column(name), allow_empty, number).to_pylist() for name in names]
                for row, fields in enumerate(zip(*columns, strict=True), number + 1):
                    yield f"row {row}", list(fields)
                number += len(batch)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None

    def read(self, take: Sequence[int], groups: Sequence[int] | None = None) -> list[Any]:
        """Return columns of ids as strings, of some row groups or of all."""
        table = self.table(take, groups)
        named = zip(table.column_names, table.columns, strict=True)
        return [self._texts(name, column) for name, column in named]

    def table(self, take: Sequence[int] | None = None, groups: Sequence[int] | None = None) -> Any:
        """Return some columns, or all, of some row groups, or all, as a pyarrow table."""
        names, opened = self.header(), self._opened
        wanted = names if take is None else [names[place] for place in take]
        try:
            return opened.read_row_groups(range(opened.num_row_groups) if groups is None else groups, wanted)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._damaged(error) from None

    def _texts(self, name: str, column: Any, allow_empty: bool = False, before: int = 0) -> Any:
        """Return a column as strings; `before` counts the rows of the file before it."""
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        fits = (pa.types.is_string, pa.types.is_large_string, pa.types.is_integer, pa.types.is_null)
        if not any(fit(kind) for fit in fits):
            raise InputError(f"'{self.label}': the column '{name}' holds {kind}; give strings or whole numbers")
        try:
            column = column.cast(kind).cast(pa.string())
            column.validate(full=True)  # Parquet may hold text that is not UTF-8
        except pa.ArrowException as error:
            raise self._damaged(error) from None
        blank = pc.fill_null(pc.equal(pc.ascii_trim(column, " "), ""), True)
        if pc.any(blank).as_py() and not allow_empty:
            row = before + pc.index(blank, True).as_py() + 1
            raise InputError(
                f"'{self.label}', row {row}: the column '{name}' is empty; fill it in or leave the row out"
            )
        return column

    @cached_property
    def _opened(self) -> Any:
        try:
            found = pq.ParquetFile(self.label)
        except (pa.ArrowException, OSError) as error:
            raise self._damaged(error) from None
        if not found.metadata.num_rows:
            raise InputError(f"'{self.label}' is empty: it holds no row")
        return found

    def _damaged(self, error: Exception) -> InputError:
        return InputError(f"'{self.label}' cannot be read: {str(error).strip().splitlines()[0].rstrip('.')}")


TABLES: dict[str, Callable[[Path, Options], Text | Parquet]] = {**dict.fromkeys(DELIMITERS, Text), ".parquet": Parquet}


def opened(path: str | Path, readers: Mapping[str, Callable[[Path, Options], T]], options: Options = DEFAULTS) -> T:
    """Return a file in the format that the ending of its name tells."""
    path = existing(path)
    reader = readers.get(endings(path)[0])
    if reader is None:
        expected = f"expected a name ending in one of {', '.join(readers)} (text also .gz or .zst)"
        what = "save the sheet as CSV (UTF-8)" if path.suffix.lower() in (".xlsx", ".xls", ".ods") else expected
        raise InputError(f"cannot tell the format of '{path}'; {what}")
    return reader(path, options)


def table(path: str | Path, options: Options = DEFAULTS) -> Text | Parquet:
    return opened(path, TABLES, options)


def text(path: str | Path) -> Text:
    return opened(path, dict.fromkeys(DELIMITERS, Text))


def _line(file: BinaryIO, place: int) -> int:
    """Return the start of the first line that begins at this place or later."""
    file.seek(max(place - 1, 0))
    if place:
        file.readline()
    return file.tell()


def _has_blank(column: Any) -> bool:
    """Return whether a field is empty or nothing but spaces."""
    spaced = column.filter(pc.starts_with(column, " "))
    empty = pc.min(pc.binary_length(column)).as_py() == 0
    return empty or bool(pc.any(pc.equal(pc.ascii_trim(spaced, " "), "")).as_py())


def _all_quoted(columns: Sequence[Any]) -> bool:
    """Return whether every field stands in double quotes with something between them."""
    first = all(str(column[0]).startswith('"') for column in columns)  # nearly always enough to tell
    return first and all(pc.all(pc.match_substring_regex(column, '^"([^"]|"")+"$')).as_py() for column in columns)
