"""Writes docs/functions.md from the table of functions: ``python scripts/functions_page.py``; a test compares them."""

from __future__ import annotations

from pathlib import Path

from penstock import functions as F
from penstock.expr import aggregation, generating
from penstock.expr.table import FUNCTIONS

PAGE = Path(__file__).parents[1] / "docs" / "functions.md"
MOST_USED = """
col lit when coalesce expr count sum avg mean max min first last countDistinct count_distinct approx_count_distinct collect_list
collect_set stddev stddev_pop stddev_samp variance var_pop var_samp skewness kurtosis corr covar_pop covar_samp percentile_approx
median mode max_by min_by any_value bool_and bool_or every some count_if sum_distinct first_value last_value array_agg percentile
concat concat_ws substring substr split regexp_extract regexp_extract_all regexp_replace regexp_substr regexp_count regexp_like
trim ltrim rtrim btrim lower upper initcap length char_length octet_length lpad rpad instr locate position replace translate
reverse repeat format_string format_number printf contains startswith endswith like ilike rlike left right substring_index
split_part overlay levenshtein soundex ascii base64 unbase64 encode decode url_encode url_decode parse_url
abs round bround ceil ceiling floor sqrt cbrt exp expm1 ln log log10 log1p log2 pow power pmod sign signum greatest least negative
sin cos tan asin acos atan atan2 sinh cosh tanh degrees radians hypot factorial hex unhex bin conv rand randn e pi rint
shiftleft shiftright bitwise_not isnan isnull isnotnull nvl nvl2 ifnull nullif nanvl
year quarter month dayofmonth day dayofweek dayofyear weekofyear weekday hour minute second date_add date_sub datediff add_months
months_between last_day next_day trunc date_trunc date_format to_date to_timestamp unix_timestamp from_unixtime current_date
current_timestamp now from_utc_timestamp to_utc_timestamp make_date make_timestamp timestamp_seconds timestamp_millis window
session_window extract date_part unix_seconds make_interval
array array_contains array_distinct array_join array_max array_min array_position array_remove array_repeat array_sort sort_array
array_union array_intersect array_except arrays_overlap arrays_zip array_append array_compact size slice element_at get flatten
sequence explode explode_outer posexplode transform filter exists forall aggregate zip_with create_map map_keys map_values
map_entries map_from_arrays map_from_entries map_contains_key map_concat transform_values transform_keys map_filter struct
named_struct str_to_map get_json_object from_json to_json json_tuple schema_of_json json_array_length from_csv to_csv
md5 sha1 sha2 crc32 hash xxhash64 row_number rank dense_rank lag lead ntile monotonically_increasing_id input_file_name udf
pandas_udf broadcast uuid to_number to_char
""".split()
INSTEAD = {
    **dict.fromkeys(
        ("rand", "randn", "uuid", "monotonically_increasing_id"), "another value each time: a replay would differ"
    ),
    **dict.fromkeys(("current_date", "current_timestamp", "now"), "depends on when it is computed; use a column"),
    **dict.fromkeys(("row_number", "rank", "dense_rank", "lag", "lead", "ntile"), "a stream has no end to rank up to"),
    **dict.fromkeys(("udf", "pandas_udf"), "`stream.map(…)` and `@ps.op`"),
    "broadcast": "tables of `lookup` are everywhere",
    "input_file_name": "not known behind the source",
}
GROUPS = ["text", "numbers", "dates", "times", "choices", "arrays", "maps", "functions of functions", "JSON", "hashes"]


def page() -> str:
    """The text of the page."""
    there = set(dir(F))
    missing = [name for name in MOST_USED if name not in there]
    lines = [
        "# Functions",
        "",
        "`from penstock import functions as F` has these under the names of `pyspark.sql.functions`; SQL text has them too.",
        "Their meaning is Spark's in ANSI mode: `tests/integration/test_spark_meaning.py` compares values and types.",
        "This page is written by `scripts/functions_page.py`.",
        "",
        f"Of {len(MOST_USED)} functions that programs use a lot (a list made by hand), {len(MOST_USED) - len(missing)} are here.",
        "",
    ]
    for group in GROUPS:
        names = sorted({name for name, row in FUNCTIONS.items() if row.group == group and name in there}, key=str.lower)
        lines += [f"**{group[0].upper()}{group[1:]}** ({len(names)}): {', '.join(f'`{name}`' for name in names)}", ""]
    names = sorted(aggregation.FUNCTIONS, key=str.lower)
    lines += [f"**Aggregates** ({len(names)}), in `group_by(…).agg(…)`: {', '.join(f'`{name}`' for name in names)}", ""]
    made = ", ".join(f"`{name}`" for name in generating.FUNCTIONS)
    lines += [
        f"**Records of elements** ({len(generating.FUNCTIONS)}), as a column of `select` or `with_columns`: {made}",
        "",
    ]
    special = "`col`, `column`, `lit`, `expr`, `when`, `coalesce`, `struct`, `from_json`, `make_interval`, `window`"
    special += ", `session_window`"
    lines += [
        f"**Made by hand**: {special}",
        "",
        "## Missing",
        "",
        "| function | why, or what to use |",
        "| --- | --- |",
    ]
    lines += [f"| `{name}` | {INSTEAD.get(name, 'not yet')} |" for name in missing]
    lines += [
        "",
        "## Where it differs from Spark",
        "",
        "No value differs. What Python cannot hold raises instead: text that is not UTF-8 (a cast of binary to string), years",
        "outside of 1 to 9999 written as text, and regular expressions with Java's `\\p{…}` or `&&`. `approx_count_distinct` and",
        "`percentile_approx` of large groups estimate by sketches of their own, within the error that is asked for. Where one argument of a",
        "function is null, the others need not be computed: an error in them is not raised.",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
