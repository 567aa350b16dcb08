"""The queries that run where Penstock is not installed give the exact results, and need nothing but Python."""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from penstock.errors import InvalidOption
from penstock_bench.engines import RunOptions, subject
from penstock_bench.engines.flink import Flink, read_printed
from penstock_bench.engines.launch import FOREIGN
from penstock_bench.foreign.programs.outlog import OutLog
from penstock_bench.foreign.programs.queries import Counting, query
from penstock_bench.meter.stamped import read_outputs
from penstock_bench.meter.subject import Came

RECORDS, START_US = 3_000, 1_700_000_000_000_000
ENGINES = {"bytewax", "pyflink", "orjson", "numpy", "redis", "quixstreams", "confluent_kafka"}


@pytest.mark.parametrize("name", ["yahoo", "wordcount", "grep", "scoring"])
def test_the_queries_in_plain_python_are_exact(name: str) -> None:
    wanted = subject(name)
    source = wanted.input(500.0, None, total=RECORDS)
    records = source.records(0, RECORDS, START_US)
    found = query(wanted.specification())
    counts: Counter[str] = Counter()
    rows = []
    for record in records:
        line = wanted.line(record)
        if isinstance(found, Counting):
            for key in found.keys(line):
                counts[key] += 1
                rows.append(json.loads(found.row(key, counts[key])))
        else:
            rows += [json.loads(row) for row in found.rows(line)]
    assert rows
    judged = wanted.judge(source, Came([(0, row) for row in rows], 0, START_US))
    assert judged[1].exact


def test_a_workload_without_a_query_is_refused() -> None:
    with pytest.raises(ValueError, match="no query for workload 'identity'"):
        query({"workload": "identity"})


def test_programs_import_nothing_but_python_their_engine_and_each_other() -> None:
    for path in (FOREIGN / "programs").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            else:
                continue
            for name in names:
                top = name.split(".")[0]
                assert top in sys.stdlib_module_names or top in ENGINES, f"{path.name} imports {name}"


def test_rows_are_stamped_when_they_leave(tmp_path: Path) -> None:
    log = OutLog(str(tmp_path), "test")
    log.row(b'["a",1]')
    log.rows([b'["b",1]', b'["b",2]'])
    log.close()
    first, *others = read_outputs(tmp_path)
    assert [each.values for each in (first, *others)] == [["a", 1], ["b", 1], ["b", 2]]
    assert others[0].out_us == others[1].out_us >= first.out_us


def test_what_flink_prints_is_read_without_what_it_takes_back(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        "WARNING: something\n"
        "2> +I[ba, 1, 2026-11-15 11:50:00.123]\n"
        "2> -U[ba, 1, 2026-11-15 11:50:00.124]\n"
        "2> +U[ba, 2, 2026-11-15 11:50:00.124]\n"
    )
    outputs = read_printed(log, subject("wordcount"))
    assert [each.values for each in outputs] == [["ba", 1], ["ba", 2]]
    assert outputs[1].out_us - outputs[0].out_us == 1_000
    log.write_text("+I[c1, 1700000000000, 3, 1970-01-01 00:00:01.5]\n")
    (window,) = read_printed(log, subject("yahoo"))
    assert (window.out_us, window.values) == (1_500_500, ["c1", 1_700_000_000_000_000, 3])


def test_flinks_settings_follow_its_variant() -> None:
    options = RunOptions(settings={"buffer-timeout": "5ms"})
    assert Flink("sql").configuration(options)["execution.buffer-timeout.interval"] == "5 ms"
    assert Flink("thread").configuration(options)["python.execution-mode"] == "thread"
    process = Flink("process").configuration(RunOptions(settings={"bundle": "20ms"}))
    assert process["python.fn-execution.bundle.time"] == "20"
    with pytest.raises(InvalidOption, match="bundle"):
        Flink("process").configuration(RunOptions(settings={"bundle": "soon"}))
