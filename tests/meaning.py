"""Expressions for every function, and records for them; tests compare both forms, and both with Spark, on these."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from penstock import functions as F
from penstock.expr import Column, call
from penstock.functions import col, lit, when
from penstock.types import Record, Schema

DDL = (
    "i int, j int, b bigint, n tinyint, h smallint, d double, e double, x float, p decimal(10,2), q decimal(20,4), "
    "s string, u string, num string, js string, iso string, url string, bin binary, t timestamp, t2 timestamp, "
    "day date, day2 date, f boolean, g boolean, ws array<string>, is_ array<int>, js_ array<int>, ds array<double>, "
    "aa array<array<int>>, m map<string, int>, m2 map<string, int>, st struct<x: int, y: string, z: struct<w: double>>, "
    "sts array<struct<k: string, v: int>>, `odd name` int"
)
SCHEMA = Schema.parse(DDL)
NAN = float("nan")


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def _struct(x: int | None, y: str | None, w: float | None) -> dict[str, Any]:
    return {"x": x, "y": y, "z": {"w": w}}


ROWS: list[dict[str, Any]] = [
    {
        "i": 7, "j": 2, "b": 1 << 40, "n": 5, "h": 300, "d": 2.5, "e": -1.25, "x": 0.1, "p": Decimal("12.35"),
        "q": Decimal("-3.1416"), "s": "Hello World", "u": "o", "num": " 42 ", "js": '{"a":{"b":[1,2.50,"x"]},"c":null}',
        "iso": "2026-03-29 01:30:00", "url": "https://u:p@spark.apache.org:80/a/b?k=v&l=w#top", "bin": b"\x00\xffabc",
        "t": _time("2026-03-29T01:30:15.123456"), "t2": _time("2025-12-31T23:59:59.999999"), "day": date(2026, 2, 28),
        "day2": date(2024, 2, 29), "f": True, "g": False, "ws": ["b", "a", None, "b"], "is_": [3, 1, 2, 3],
        "js_": [3, 9], "ds": [1.5, NAN, -0.0, 0.0, NAN], "aa": [[1], [2, None]], "m": {"k": 1, "l": None}, "m2": {"z": 9},
        "st": _struct(1, "q", 0.5), "sts": [{"k": "a", "v": 1}, {"k": "b", "v": None}], "odd name": 4,
    },
    {},
    {
        "i": -13, "j": 5, "b": -9, "n": -128, "h": -1, "d": NAN, "e": 0.5, "x": -2.5, "p": Decimal("-0.05"),
        "q": Decimal("123456789.9999"), "s": "  spaced\tout  ", "u": "", "num": "-7", "js": "[1,2,3]",
        "iso": "1969-12-31", "url": "http://example.com", "bin": b"", "t": _time("1969-12-31T23:59:59.000001"),
        "t2": _time("2000-02-29T12:00:00"), "day": date(1969, 12, 31), "day2": date(2000, 1, 1), "f": False, "g": None,
        "ws": [], "is_": [], "js_": [1], "ds": [], "aa": [], "m": {}, "m2": {"a": 1, "b": 2}, "st": _struct(None, None, None),
        "sts": [], "odd name": -4,
    },
    {
        "i": 1_000_000, "j": -3, "b": 0, "n": 0, "h": 32767, "d": 1234567.891, "e": 1e-5, "x": 16777216.0,
        "p": Decimal("99999999.99"), "q": Decimal("0"), "s": "Ärger über Straße, 1.5e3", "u": "%_x", "num": "123456789",
        "js": "{broken", "iso": "2026-12-31T23:59:59.5Z", "url": "ftp://a.b/c%20d?q=%2F", "bin": "Straße".encode(),
        "t": _time("2026-10-25T00:30:00"), "t2": _time("2026-10-25T00:30:00"), "day": date(2026, 12, 31),
        "day2": date(2026, 12, 31), "f": None, "g": True, "ws": [None], "is_": [None, 5], "js_": [None], "ds": [NAN],
        "aa": [None, [1]], "m": {"k": None}, "m2": {"c": 3}, "st": None, "sts": [None], "odd name": 0,
    },
    {
        "i": -1, "j": 1, "b": 12345678901, "n": 127, "h": 0, "d": -2.5, "e": NAN, "x": NAN, "p": Decimal("1.005"[:4]),
        "q": Decimal("2.5"), "s": "aXbXc", "u": "X", "num": "0", "js": '{"a":1,"t":"2020-01-01","l":[{"q":1},{"q":2}]}',
        "iso": "2020-1-2 3:4:5.678+02:00", "url": "", "bin": b"\x80", "t": _time("0001-01-02T00:00:00"),
        "t2": _time("9999-12-31T23:59:59"), "day": date(1, 1, 1), "day2": date(9999, 12, 31), "f": True, "g": True,
        "ws": ["x", "y"], "is_": [-1, -1], "js_": [], "ds": [1e10, 1e-10], "aa": [[], [7]], "m": {"a": 5, "b": 6},
        "m2": {}, "st": _struct(9, "é", NAN), "sts": [{"k": "z", "v": 3}], "odd name": 1,
    },
]  # fmt: skip


def records() -> list[Record]:
    """The records."""
    return [SCHEMA.coerce(row) for row in ROWS]


def numbers() -> list[Column]:
    i, j, b, d, e, x, p, q = (col(name) for name in "ijbdexpq")
    return [
        i + j, i - j, i * j, i / j, i % j, -i, -d, b + i, b * 2, d + e, d * x, x + x, x * 2, x + i, d % e, p + q, p - q, p * q,
        p / lit(Decimal("3")), p % lit(Decimal("0.3")), p * 2, p + i, p + d, i / lit(Decimal("1.5")), p / i, n_times(),
        col("h") + col("n"), col("h") + 1, i == j, i < b, d == e, d != e, d < e, d <= e, d > e, d >= e, d == d, d > 1.0, d < 1.0,
        d >= 2.5, x > d, lit(1.0) > d, lit(1.0) <= d, p > q, p == 12.35, p > i, p.isin(lit(Decimal("12.35")), lit(5)),
        d.isin(2.5, NAN), i.isin(7, -1), i.between(-5, 10), d.between(0.0, 3.0), d.between(e, 10.0), i.between(j, 10),
        d.eqNullSafe(e), i.eqNullSafe(j), d.eqNullSafe(d), F.abs("i"), F.abs("d"), F.abs("p"), F.negative("h"), F.positive("d"),
        F.round("d"), F.round("d", 2), F.round("d", -2), F.round("p", 1), F.round("p", -1), F.round("i", -1), F.round("x", 1),
        F.bround("d"), F.bround("p", 1), F.bround("i", -1), F.ceil("d"), F.ceil("p"), F.ceil("i"), F.floor("d"), F.floor("p"),
        F.floor("b"), F.ceil("d", lit(1)), F.floor("p", lit(1)), F.rint("d"), F.sqrt("d"), F.cbrt("d"), F.exp("e"), F.expm1("e"),
        F.ln("d"), F.log("d"), F.log(2.0, "d"), F.log10("d"), F.log2("b"), F.log1p("e"), F.pow("d", "e"), F.pow("i", 2),
        i ** 2, F.sign("d"), F.signum("i"), F.pmod("i", "j"), F.pmod("d", lit(2.0)), F.sin("e"), F.cos("e"), F.tan("e"), F.asin("e"),
        F.acos("e"), F.atan("d"), F.atan2("d", "e"), F.sinh("e"), F.cosh("e"), F.tanh("d"), F.cot("e"), F.sec("e"), F.csc("e"),
        F.degrees("d"), F.radians("d"), F.hypot("d", "e"), F.factorial("j"), F.hex("i"), F.hex("s"), F.hex("bin"),
        F.unhex(F.hex("s")), F.unhex("s"), F.bin("i"), F.conv("num", 10, 16), F.conv("num", 10, -16), F.shiftleft("i", 3),
        F.shiftright("i", 1), F.shiftrightunsigned("i", 1), F.shiftleft("b", 40), F.bitwise_not("i"), i.bitwiseAND(j),
        i.bitwiseOR(j), b.bitwiseXOR(i), F.bit_count("i"), F.bit_get("i", lit(3)), F.width_bucket("e", lit(0.0), lit(1.0), lit(4)),
        F.isnan("d"), F.nanvl("d", "e"), F.try_add("i", lit(2147483647)), F.try_subtract("i", "j"), F.try_multiply("i", "i"),
        F.try_divide("i", lit(0)), F.try_divide("d", "j"), F.e(), F.pi(), call("div", i, j), F.format_number("d", 2), F.format_number("b", 0),
        x + col("n"), x - col("h"), F.pmod("q", lit(Decimal("7"))), F.pmod("p", lit(3)), F.try_add("p", "q"), F.try_subtract("p", "d"), F.try_multiply("p", "i"),
        F.try_divide("p", lit(3)), F.try_add("x", "x"), F.shiftleft("n", 9), F.shiftrightunsigned("h", 1), i // 2, b // j, F.zeroifnull("p"),
        -(q.cast("decimal(38,18)") * 100000000000000), F.abs(-q.cast("decimal(38,18)") * 100000000000000), F.nullif("i", "d"), F.nullif("d", "i"),
    ]  # fmt: skip


def n_times() -> Column:
    return col("n") * lit(0)


def texts() -> list[Column]:
    s, u = col("s"), col("u")
    return [
        F.upper("s"), F.lower("s"), F.ucase("s"), F.lcase("s"), F.initcap("s"), F.length("s"), F.char_length("s"), F.length("bin"),
        F.octet_length("s"), F.bit_length("s"), F.trim("s"), F.ltrim("s"), F.rtrim("s"), F.btrim("s"), F.trim("s", lit("dHe ")),
        F.concat("s", "u"), F.concat("s", lit("-"), "i"), F.concat_ws("-", "s", "u", "ws"), F.substring("s", 2, 3),
        F.substring("s", -3, 2), F.substring("s", 0, 2), s.substr(1, 4), F.substr("s", lit(3)), F.left("s", lit(3)), F.right("s", lit(3)),
        F.substring_index("s", " ", 1), F.substring_index("s", " ", -1), F.split("s", " "), F.split("s", "[aeiou]", 2),
        F.split("s", ""), F.split("s", "X"), F.split_part("s", lit(" "), lit(2)), F.split_part("s", lit(" "), lit(-1)),
        F.regexp_extract("s", r"(\w+) (\w+)", 2), F.regexp_extract("s", "[0-9]", 0), F.regexp_extract_all("s", lit(r"(\w)"), lit(1)),
        F.regexp_replace("s", "([aeiou])", "<$1>"), F.regexp_replace("s", r"\s+", "_"), F.regexp_substr("s", lit("[a-z]+")),
        F.regexp_instr("s", lit("o")), F.regexp_count("s", lit("o")), F.rlike("s", lit("^H")), s.rlike("o$|ß"), F.regexp_like("s", lit("X")),
        F.like("s", lit("%o%")), F.like("s", lit("a_b%")), F.ilike("s", lit("hello%")), s.like("H%"), s.contains("o"), s.startswith("He"),
        s.endswith("c"), F.contains("s", "u"), F.startswith("s", "u"), F.endswith("s", "u"), F.lpad("s", 14, "*-"), F.rpad("s", 14, "*-"),
        F.lpad("s", 3, "x"), F.instr("s", "o"), F.locate("o", "s"), F.locate("o", "s", 6), F.position(lit("o"), "s"),
        F.replace("s", lit("o"), lit("0")), F.translate("s", "lo", "01"), F.translate("s", "lo", "0"), F.overlay("s", lit("##"), 3),
        F.overlay("s", lit("##"), 3, 4), F.reverse("s"), F.reverse("is_"), F.repeat("u", 3), F.space(lit(3)), F.ascii("s"), F.char("b"),
        F.chr("i"), F.base64("bin"), F.unbase64(F.base64("bin")), F.encode("s", "UTF-8"), F.decode(F.encode("s", "UTF-16"), "UTF-16"),
        F.levenshtein("s", "u"), F.soundex("s"), F.find_in_set("u", lit("a,X,o")), F.elt(lit(2), "s", "u"), F.url_encode("s"),
        F.url_decode(F.url_encode("s")), F.parse_url("url", lit("HOST")), F.parse_url("url", lit("QUERY")), F.parse_url("url", lit("PATH")),
        F.parse_url("url", lit("QUERY"), lit("k")), F.parse_url("url", lit("PROTOCOL")), F.luhn_check("num"),
        F.format_string("%s|%5d|%-4d|%05d|%x", "s", "i", "j", "j", "i"), F.format_string("%.3f %s %s %e", "d", "d", "f", "d"),
        F.printf(lit("%,d"), "b"), F.md5("s"), F.sha1("s"), F.sha("s"), F.sha2("s", 256), F.sha2("bin", 512), F.sha2("s", 224), F.crc32("s"),
        F.hash("s"), F.hash("i", "b", "d", "x", "f", "s", "day", "t", "n"), F.hash("ws", "st"), F.hash("p", "q"), F.xxhash64("s"),
        F.xxhash64("i", "b", "d", "x", "f", "day", "t", "h"), F.xxhash64("ws", "st", "p"), F.xxhash64(F.repeat("s", 5)),
        s > u, s == u, s < "M", F.concat("bin", "bin"), F.concat_ws("-", "i", "is_", "f"), F.regexp_substr("s", lit("q*")),
        F.regexp_extract("s", "nowhere", 3), F.locate("o", "s", lit(None).cast("int")), F.contains("i", "j"), F.soundex(lit("ßa")),
        F.regexp_extract_all("s", lit("nowhere"), lit(2)),
    ]  # fmt: skip


def times() -> list[Column]:
    t = col("t")
    return [
        F.year("t"), F.year("day"), F.quarter("t"), F.month("day"), F.dayofmonth("t"), F.day("t"), F.dayofweek("t"), F.weekday("day"),
        F.dayofyear("t"), F.weekofyear("day"), F.hour("t"), F.minute("t"), F.second("t"), F.dayname("day"), F.monthname("t"),
        F.extract(lit("YEAR"), "t"), F.date_part(lit("SECOND"), "t"), F.extract(lit("DOW"), "day"), F.extract(lit("HOUR"), "t"),
        F.date_add("day", 0), F.date_sub("day", 0), F.date_add("day", col("j") * 0), F.datediff("day2", "day"), F.datediff("t2", "t"),
        F.add_months("day", 0), F.last_day("day"), F.next_day(lit("2026-02-27").cast("date"), "Mon"), F.trunc("day", "month"),
        F.trunc("day", "year"), F.trunc("day", "quarter"), F.trunc("day", "bogus"), F.date_trunc("hour", "t"), F.date_trunc("day", "t"),
        F.date_trunc("month", "t"), F.date_trunc("second", "t"), F.date_trunc("quarter", "t"), F.date_trunc("bogus", "t"),
        F.date_format("t", "yyyy-MM-dd HH:mm:ss.SSS"), F.date_format("day", "EEE, d MMM yyyy"), F.date_format("t", "hh:mm a, D"),
        F.date_format("t", "EEEE MMMM yy 'at' H"), F.to_date("iso"), F.to_timestamp("iso"), F.to_timestamp("t"), F.to_date("t"),
        F.to_timestamp(F.date_format("t", "dd/MM/yyyy HH:mm"), "dd/MM/yyyy HH:mm"), F.to_date(F.date_format("day", "yyyyMMdd"), "yyyyMMdd"),
        F.unix_timestamp("t"), F.unix_timestamp(F.date_format("t", "yyyy-MM-dd HH:mm:ss")), F.from_unixtime(col("b") % 1000000007),
        F.from_unixtime("i", "yyyy/MM/dd"), F.from_utc_timestamp("t2", "UTC"), F.from_utc_timestamp(safe(t), "Europe/Berlin"),
        F.to_utc_timestamp(safe(t), "America/New_York"), F.from_utc_timestamp(safe(t), "+05:30"), F.timestamp_seconds("i"),
        F.timestamp_seconds("e"), F.timestamp_millis("b"), F.timestamp_micros("b"), F.unix_seconds("t"), F.unix_millis("t"),
        F.unix_micros("t"), F.unix_date("day"), F.date_from_unix_date("j"), F.make_date(lit(2024), lit(2), lit(29)),
        F.make_timestamp(lit(2024), lit(2), lit(29), lit(1), lit(2), lit(Decimal("3.5"))), F.months_between("t2", "t"),
        F.months_between("day2", "day"), F.timestamp_add("HOUR", col("j").cast("bigint") * 0, "t"),
        F.timestamp_diff("DAY", "t", "t2"), F.timestamp_diff("MONTH", "t", "t2"),
        safe(t) + F.make_interval(hours=1, mins=30), safe(t) - F.make_interval(months=1), safe(t) + F.make_interval(days=2, secs=0.5),
        F.make_date(lit(2024), lit(1), lit(31)) + F.make_interval(months=1), t > F.to_timestamp(lit("2000-01-01")), col("day") > "2000-01-01",
        col("day") == col("day2"), t >= col("day"), F.add_months(F.make_date(lit(2024), lit(2), lit(29)), "j"),
    ]  # fmt: skip


def safe(time: Column) -> Column:
    """Times whose neighbours exist too."""
    return when(F.year(time) > 1000, time)


def nested() -> list[Column]:
    ws, m, st = col("ws"), col("m"), col("st")
    return [
        col("st.x"), col("st.z.w"), st["y"], col("sts.k"), m["k"], F.size("ws"), F.size("m"), F.cardinality("is_"), F.array_size("ws"),
        F.array("i", "j"), F.array(lit(1), "d"), F.array_contains("is_", 3), F.array_contains("ws", "b"), F.array_distinct("is_"),
        F.array_distinct("ds"), F.array_join("ws", ","), F.array_join("ws", ",", "?"), F.array_max("is_"), F.array_min("is_"),
        F.array_max("ds"), F.array_position("is_", 3), F.array_remove("is_", 3), F.array_append("is_", 4), F.array_prepend("is_", 4),
        F.array_insert("is_", 2, 8), F.array_insert("is_", -2, 8), F.array_insert("is_", 7, 8), F.array_compact("ws"), F.array_union("is_", "js_"),
        F.array_intersect("is_", "js_"), F.array_except("is_", "js_"), F.arrays_overlap("is_", "js_"), F.arrays_zip("is_", "ws"),
        F.array_repeat("s", 2), F.sort_array("is_"), F.sort_array("ws", False), F.sort_array("ds"), F.array_sort("ws"), F.array_sort("ds"),
        F.slice("is_", 2, 2), F.slice("is_", -2, 2), F.try_element_at("is_", lit(1)), F.try_element_at("is_", lit(-1)), F.element_at("m", "k"),
        F.try_element_at("m", lit("k")), F.get("is_", 0), F.get("is_", -1), F.flatten("aa"), F.sequence(lit(1), lit(5)), F.sequence(lit(5), lit(1), lit(-2)),
        F.concat("is_", "js_"), F.create_map(lit("a"), "i", lit("b"), "j"), F.map_keys("m"), F.map_values("m"), F.map_entries("m"),
        F.map_contains_key("m", "k"), F.map_from_arrays(F.array(lit("x"), lit("y")), F.array("i", "j")), F.map_from_entries("sts"),
        F.map_concat("m", "m2"), F.str_to_map(lit("a:1,b:2,c")), F.str_to_map(lit("a=1&b="), lit("&"), lit("=")), F.struct("i", "s"),
        F.struct(col("i").alias("k"), col("d") + 1), F.named_struct(lit("a"), "i", lit("b"), "ws"), F.transform("is_", lambda v: v + 1),
        F.transform("is_", lambda v, at: v + at), F.transform("ws", lambda w: F.concat(w, col("u"))), F.filter("is_", lambda v: v > 1),
        F.filter("ws", lambda w: w.isNotNull()), F.exists("is_", lambda v: v == 3), F.forall("is_", lambda v: v > 0),
        F.aggregate("js_", lit(0), lambda a, v: a + F.coalesce(v, lit(1))), F.aggregate("js_", lit(0), lambda a, v: a + v, lambda a: a * 2),
        F.zip_with("is_", "js_", lambda a, c: F.coalesce(a, lit(0)) + F.coalesce(c, lit(0))), F.transform_values("m", lambda k, v: v * 2),
        F.transform_keys("m", lambda k, v: F.upper(k)), F.map_filter("m", lambda k, v: v > 1), F.transform("aa", lambda a: F.size(a) + 1),
        F.transform("sts", lambda each: each["v"]), F.get_json_object("js", "$.a.b[1]"), F.get_json_object("js", "$.a"),
        F.get_json_object("js", "$.l[*].q"), F.get_json_object("js", "$[1]"), F.get_json_object("js", "$.a.b[2]"), F.get_json_object("js", "$.zz"),
        F.from_json("js", "a int, t date"), F.from_json("js", "a struct<b: array<double>>"), F.from_json("js", "array<int>"),
        F.from_json("js", "map<string, string>"), F.to_json("st"), F.to_json("m"), F.to_json("ws"), F.to_json(F.struct("t", "day", "d", "p", "f", "bin")),
        F.json_array_length("js"), F.json_object_keys("js"), F.get("ws", 1), ws.isNull(),
        F.array_join("is_", "-"), F.array_contains("is_", lit(3).cast("bigint")), F.array_append("is_", col("b")), F.array_remove("is_", lit(1.0)),
        F.map_contains_key("m", "s"), F.array_position("ds", lit(1)),
    ]  # fmt: skip


def choices() -> list[Column]:
    i, d, s = col("i"), col("d"), col("s")
    return [
        F.coalesce("i", "j"), F.coalesce("n", lit(0)), F.coalesce("i", "d"), F.nvl("s", "u"), F.ifnull("i", lit(0)), F.nvl2("f", "i", "j"),
        F.nullif("i", lit(7)), F.isnull("s"), F.isnotnull("s"), F.equal_null("i", "j"), call("if", i > 0, s, "no"), call("if", i > 0, i, d), F.zeroifnull("i"), F.nullifzero("j"), F.greatest("i", "j", "b"),
        F.least("d", "e"), F.greatest("d", "e"), F.greatest("s", "u"), when(i > 0, "up").when(i < 0, "down").otherwise("flat"),
        when(i > 0, i).otherwise(d), when(i > 5, 1), (col("f") & col("g")), (col("f") | col("g")), ~col("f"), i.is_null(), s.is_not_null(),
        (i > 0) & (d > 0), (i > 0) | s.is_null(), col("odd name") + 1,
        call("if", F.isnull("i") | (i == 0), lit(0.0), 1 / i), F.nvl2("f", "i", "p"), F.nvl2("st", "i", "num"), F.nvl("day", lit("2020-01-02")),
        F.greatest("i", "p"), F.least("day", "t"), F.to_timestamp("t", lit(None).cast("string")), F.unix_timestamp("day", lit(None).cast("string")),
    ]  # fmt: skip


def casts() -> list[Column]:
    made = [col("num").cast(kind) for kind in ("int", "bigint", "double", "decimal(12,3)", "float")]
    made += [col(name).cast("string") for name in "i d e x p q t day f ws m st sts ds".split()]
    made += [
        col("b").cast("double"),
        col("i").cast("double"),
        col("i").cast("decimal(20,3)"),
        col("p").cast("int"),
        col("p").cast("double"),
    ]
    made += [
        col("p").cast("decimal(10,1)"),
        col("p").cast("string"),
        col("e").cast("decimal(10,6)"),
        col("i").cast("boolean"),
        col("f").cast("int"),
    ]
    made += [
        col("t").cast("bigint"),
        col("t").cast("date"),
        col("day").cast("timestamp"),
        col("t").cast("double"),
        col("i").cast("timestamp"),
    ]
    made += [
        col("x").cast("double"),
        col("e").cast("float"),
        col("is_").cast("array<string>"),
        col("is_").cast("array<bigint>"),
        col("iso").cast("date"),
    ]
    made += [
        col("iso").cast("timestamp"),
        col("s").cast("binary"),
        col("s").try_cast("int"),
        col("s").try_cast("date"),
        col("b").try_cast("int"),
    ]
    made += [
        col("s").try_cast("double"),
        col("q").try_cast("decimal(5,2)"),
        col("p").cast("boolean"),
        col("t").cast("decimal(20,6)"),
    ]
    return [
        *made,
        lit("true").cast("boolean"),
        lit("1e3").cast("double"),
        lit(" .5 ").cast("decimal(3,2)"),
        col("m").cast("map<string, bigint>"),
    ]


def failures() -> list[Column]:
    """What raises on some record, in both."""
    return [
        col("i") + lit(2147483647), col("b") * lit(1 << 62), col("n") * col("n"), -col("n"), col("i") / lit(0), col("i") % lit(0),
        col("d") / 0.0, col("s").cast("int"), col("b").cast("int"), col("d").cast("int"), col("s").cast("date"), col("js").cast("boolean"),
        col("p").cast("decimal(4,2)"), col("p") * lit(Decimal("1e30")) * lit(Decimal("1e9")), col("is_")[5], F.element_at("is_", lit(9)),
        F.to_date("s", "yyyy"), F.sequence(lit(1), lit(5), lit(-1)), F.make_date(lit(2023), lit(2), lit(29)), F.map_from_arrays("ws", "ws"),
        F.raise_error("x"), F.abs("n"), F.conv(lit("F" * 20), 16, 10), F.floor(lit(1e300)), F.ceil(lit(float("-inf"))),
        F.parse_url(lit("a b"), lit("HOST")), F.regexp_count("s", lit("{x}")), F.regexp_extract("s", "l", 4),
    ]  # fmt: skip


GROUPS = {"numbers": numbers, "texts": texts, "times": times, "nested": nested, "choices": choices, "casts": casts}
