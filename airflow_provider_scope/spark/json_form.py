"""Look at the text of JSON files for what Spark's parser drops without a word.

The parser stops behind the first value of a line, or of a file with ``multiLine``. It leaves out keys that
are not declared, also those that differ only in case. Of a key that comes twice it takes the last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - the name everybody uses
from pyspark.sql import types as T  # noqa: N812

from airflow_provider_scope.core.sql import literal, quoted
from airflow_provider_scope.spark import listing
from airflow_provider_scope.spark.checks import not_compiled
from airflow_provider_scope.spark.problems import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from airflow_provider_scope.spark.source import Source

SHOWN = 300
SEPARATED = ('" :', '"\t:', '"\r:')
"""A key with a blank behind it, which the quick look does not take for one."""
_ESCAPED_SURROGATES = ("\\ud", "\\uD")
_HIGH, _LOW = r"\\ud[89ab][0-9a-f]{2}", r"\\ud[c-f][0-9a-f]{2}"
_LONE_SURROGATE = rf"(?i)(?<!\\)(?:\\\\)*(?:{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW})"
"""``\\ud800`` without the other half; a parser makes a question mark of it."""
MOST_KEYS = 60
"""With more columns than these, to look for each key costs more than the close look."""
_SENTINEL = "airflow_provider_scope_end"
UNDECLARED = "it has keys"
NOT_UTF8 = "it has bytes that are not UTF-8"
LONE_SURROGATE = "it has an escape for half of a character"
SECOND_VALUE = "it has something behind its first JSON value"
NO_NUMBER = "it has NaN or Infinity, which are no JSON"
_NO_NUMBER = r"[:,\[]\s*[-+]?(?:NaN|INF|Infinity)\s*[,\]}]"
_HINTS = {
    NOT_UTF8: "name its encoding: options={'encoding': 'ISO-8859-1'}",
    SECOND_VALUE: "one line holds one value; with multiLine, one file holds one value or one array",
    NO_NUMBER: "options={'allowNonNumericNumbers': 'true'} takes them as numbers; a key that occurs twice "
    "is then not detected",
    UNDECLARED: "declare them in `columns` (as string they hold their JSON text), or set "
    'extra_columns="ignore"; keys are compared exactly, letter case included',
    "it has a key twice": "only the last value would be loaded",
}
"""Beginning of a problem -> what may help."""
_NOT_INFERRED = (
    'declare `columns` (a string column holds the JSON text), or set extra_columns="ignore". A key that '
    "holds nothing but {} in the files that columns are inferred from gets no column. Keys are compared "
    "exactly, letter case included"
)


def problems(
    spark: SparkSession, paths: Sequence[str], columns: T.StructType, source: Source
) -> list[Problem]:
    """Give the files with such a text.

    :param columns: Keys beside these, at any depth, are a problem, unless the source leaves them out.
    """
    lines, text = _texts(spark, paths, source)
    is_utf8 = "value" in lines.columns
    look = _Look(lax(source.options), extra=source.extra)
    quick = f"({_is_plain(columns, text)} OR trim({text}) = '')"
    close = not_compiled(look.wrong(columns, text))
    wrong = f"CASE WHEN {quick} THEN NULL ELSE {close} END"
    if is_utf8:
        wrong = f"CASE WHEN NOT is_valid_utf8(value) THEN {literal(NOT_UTF8)} ELSE {wrong} END"
    found = (
        lines.select("file", F.expr(wrong).alias("wrong"), F.expr(f"left({text}, {SHOWN})").alias("line"))
        .where("wrong IS NOT NULL")
        .groupBy("file")
        .agg(F.first(F.struct("wrong", "line")).alias("first"))
        .select("file", "first.wrong", "first.line")
    )
    hints = {**_HINTS, UNDECLARED: _NOT_INFERRED} if source.inferred or source.columns is None else _HINTS
    return [
        Problem(row.file, row.wrong, row.line, next((hints[s] for s in hints if row.wrong.startswith(s)), ""))
        for row in found.collect()
    ]


def lax(options: Mapping[str, str]) -> dict[str, str]:
    """Give the options of a reader that allow more than JSON, such as ``allowComments``."""
    return {name: options[name] for name in sorted(options) if name.startswith("allow")}


def parse(text: str, schema: str, lax: Mapping[str, str], *, bad: str) -> str:
    """Give SQL that parses a text as Spark's reader does.

    :param schema: The columns that are wanted, as text.
    :param bad: The one that gets the text if it cannot be parsed.
    """
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": bad, **lax}
    pairs = ", ".join(f"{literal(name)}, {literal(value)}" for name, value in options.items())
    return f"from_json({text}, {literal(schema)}, map({pairs}))"


def _texts(spark: SparkSession, paths: Sequence[str], source: Source) -> tuple[DataFrame, str]:
    """Give the texts that hold a value each, with their file, and SQL of the text.

    :return: The texts are bytes in a column ``value`` if they are UTF-8, else decoded in ``text``.
    """
    line_sep = source.options.get("linesep")
    given = {"wholetext": str(source.is_multi_line or source.is_wide).lower()}
    if line_sep is not None and not source.is_wide:
        given["lineSep"] = line_sep
    files = listing.load(lambda: spark.read.format("text").options(**given), paths)
    files = files.select("value", F.col(listing.FILE).alias("file"))
    if source.is_utf8:
        return files, "ltrim('\ufeff', value)" if source.is_multi_line else "value"
    decoded = f"decode(CAST(value AS binary), {literal(source.encoding)})"
    if source.is_wide and not source.is_multi_line:
        ends = literal("\n" if line_sep is None else line_sep)
        lines = f"explode(split({decoded}, {ends}))"
        return files.select("file", F.expr(lines).alias("text")), "ltrim('\ufeff', text)"
    return files.select("file", F.expr(decoded).alias("text")), "text"


def _is_plain(columns: T.StructType, text: str) -> str:
    r"""Give SQL for a quick look that most lines pass: one flat object with declared keys, each once.

    The first brace that closes is at the end. Each ``":`` ends a key, or stands inside a text as ``\":``;
    and as many as there are of them are declared keys that the line has.
    """
    is_flat = not any(isinstance(f.dataType, (T.StructType, T.MapType, T.VariantType)) for f in columns)
    if not is_flat or len(columns) > MOST_KEYS:
        return "false"
    keys = [name for name in columns.names if '"' not in name and "\\" not in name]
    named = [literal('"' + name + '":') for name in keys]
    there = " + ".join(f"CAST(contains({text}, {key}) AS int)" for key in named) or "0"
    ends = f"""(octet_length({text}) - octet_length(replace({text}, '":', ''))) DIV 2"""
    # An escape may be half of a character.
    whole = " AND ".join(f"NOT contains({text}, {literal(start)})" for start in _ESCAPED_SURROGATES)
    # By bytes: to count characters costs as much as the rest of the look.
    before = f"octet_length(substring_index({text}, '}}', 1))"
    closes = f"{whole} AND {before} = octet_length(rtrim({text})) - 1"
    apart = " AND ".join(f"NOT contains({text}, {literal(part)})" for part in SEPARATED)
    opens = f"ltrim({text}) LIKE '{{%'"
    return f"({opens} AND {closes} AND {ends} = {there} AND {apart})"


@dataclass(frozen=True, slots=True)
class _Look:
    """A close look at one text."""

    lax: Mapping[str, str]
    """The user's options that allow more than JSON."""
    extra: bool
    """Whether keys that are not declared are no problem."""

    def wrong(self, columns: T.StructType, text: str) -> str:
        """Give SQL for what is wrong with a text; NULL if nothing is, or if the reader tells it."""
        lone = f"{text} RLIKE {literal(_LONE_SURROGATE)}"
        array = f"ltrim({text}) LIKE '[%'"
        items = self._parse(text, "array<string>")
        in_array = self._first(f"transform({items}, e -> {self._keys(columns, 'e')})")
        broken = f"if({array}, {items} IS NULL, {self._parse(text, 'bad string')}.bad IS NOT NULL)"
        return (
            f"CASE WHEN {lone} THEN {literal(LONE_SURROGATE)} "
            f"WHEN {self._is_single(text)} THEN if({array}, {in_array}, {self._keys(columns, text)}) "
            f"WHEN {text} RLIKE {literal(_NO_NUMBER)} AND {self._is_closed(text)} THEN {literal(NO_NUMBER)} "
            f"WHEN {broken} THEN NULL ELSE {literal(SECOND_VALUE)} END"
        )

    def _parse(self, text: str, schema: str) -> str:
        return parse(text, schema, self.lax, bad="bad")

    def _is_single(self, text: str) -> str:
        """Give SQL for whether a text is one JSON value and nothing else; children are skipped, not read."""
        closed = self._is_closed(text)
        if self.lax:
            return f"({closed})"
        return f"({closed} AND json_array_length(concat('[', {text}, ']')) <=> 1)"

    def _is_closed(self, text: str) -> str:
        """Give SQL for the same of a text in which Spark's reader takes more than JSON has."""
        put = f"""concat('{{"v":', {text}, ',"{_SENTINEL}":1}}')"""
        ends = self._parse(put, f"{_SENTINEL} int, bad string")
        return f"{ends}.{_SENTINEL} <=> 1 AND {ends}.bad IS NULL"

    def _names(self, text: str) -> str:
        if self.lax:  # the function takes no options; a key that comes twice is not seen then
            return f"map_keys({self._parse(text, 'map<string,string>')})"
        return f"json_object_keys({text})"

    def _keys(self, kind: T.DataType, text: str, depth: int = 0) -> str:
        """Give SQL for the first key that is repeated or not declared in a value's text; NULL if none."""
        one = f"e{depth}"
        if isinstance(kind, T.StructType):
            return self._keys_of_struct(kind, text, depth)
        if isinstance(kind, T.ArrayType) and _is_nested(kind.elementType):
            inner = self._keys(kind.elementType, one, depth + 1)
            return self._first(f"transform({self._parse(text, 'array<string>')}, {one} -> {inner})")
        if isinstance(kind, T.MapType):
            inner = "CAST(NULL AS string)"
            if _is_nested(kind.valueType):
                values = f"map_values({self._parse(text, 'map<string,string>')})"
                of_value = self._keys(kind.valueType, one, depth + 1)
                inner = self._first(f"transform({values}, {one} -> {of_value})")
            return f"CASE {self._twice(text)} ELSE {inner} END"
        return "CAST(NULL AS string)"

    def _keys_of_struct(self, kind: T.StructType, text: str, depth: int) -> str:
        names = self._names(text)
        known = ", ".join(literal(name) for name in kind.names)
        unknown = f"array_except({names}, array({known}))"
        told = f"concat('it has keys that are not declared: ', array_join({unknown}, ', '))"
        more = "" if self.extra else f"WHEN size({unknown}) > 0 THEN {told}"
        nested = []
        for field in kind:
            if _is_nested(field.dataType):
                inner = f"{self._parse(text, f'{quoted(field.name)} string')}.{quoted(field.name)}"
                nested.append(self._keys(field.dataType, inner, depth + 1))
        deeper = f"coalesce({', '.join(nested)})" if nested else "CAST(NULL AS string)"
        return f"CASE {self._twice(text)} {more} ELSE {deeper} END"

    def _twice(self, text: str) -> str:
        names = self._names(text)
        told = f"concat('it has a key twice: ', array_join({names}, ', '))"
        return (
            f"WHEN {names} IS NULL THEN NULL WHEN size({names}) > size(array_distinct({names})) THEN {told}"
        )

    def _first(self, found: str) -> str:
        return f"try_element_at(filter({found}, p -> p IS NOT NULL), 1)"


def _is_nested(kind: T.DataType) -> bool:
    return isinstance(kind, (T.StructType, T.ArrayType, T.MapType))
