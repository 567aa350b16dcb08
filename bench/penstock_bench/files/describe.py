"""A workload file in words, for `penstock bench check`: its parts, with the rates to expect at each."""

from __future__ import annotations

from penstock.durations import format_us
from penstock.operators import Pairing
from penstock_bench.files.layout import Layout, Place, Timing, output_names
from penstock_bench.files.load import Description
from penstock_bench.files.model import AnyTransformation, Filter, Join, Merge, Modify, Split

PAIRS_EPS_MAX = 1_000_000  # a join that is foreseen to make more than this is pointed out


def describe(description: Description) -> list[str]:
    layout = description.layout
    lines = [f"{description.path}: {description.title}", "sources"]
    rows = [(name, source_text(description, name), plan.rate_text) for name, plan in description.sources.items()]
    lines += _columns(rows)
    if description.transformations:
        lines.append("transformations")
    rows = []
    for name in (*layout.order, *(name for name in layout.unused if name in description.transformations)):
        transformation = description.transformations[name]
        read_eps, made_eps = layout.rates_eps[name]
        each = " to each output" if isinstance(transformation, Split) else ""
        most = "at most " if _is_once(transformation) else ""
        figures = f"{_eps(read_eps)} in, {most}{_eps(made_eps)} out{each}"
        rows.append((name, transformation_text(description, name), figures))
    lines += _columns(rows)
    lines.append("sinks")
    lines += _columns([(name, "", f"{_eps(layout.rates_eps[place.node][1])}") for name, place in layout.sinks.items()])
    return lines + [f"note: {note}" for note in notes(description)]


def source_text(description: Description, name: str) -> str:
    source = description.sources[name]
    last = source.keys.low + source.keys.count - 1
    keys = f"keys key{source.keys.low} to key{last} ({source.keys.text})" if source.keys.count > 1 else f"key key{last}"
    return f"{keys}, messages of {source.lengths.mean:,.0f} letters on average ({source.lengths.text})"


def transformation_text(description: Description, name: str) -> str:
    transformation, layout = description.transformations[name], description.layout
    read = " and ".join(_name(place, description) for place in layout.inputs[name])
    text = f"{transformation.__struct_config__.tag} of {read}: {_what(name, transformation, layout)}"
    loads = {word: getattr(transformation.params, word) for word in ("cpu_load", "mem_load", "disk_load")}
    return ", ".join([text, *(f"{word} {value:g}" for word, value in loads.items() if value)])


def _what(name: str, transformation: AnyTransformation, layout: Layout) -> str:
    match transformation:
        case Filter(params=params):
            return f"drops {params.p:.4g} of the messages (p is the probability of dropping)"
        case Modify(params=params):
            return f"size x {params.size_ratio:g}, messages x {params.rate_ratio:g}"
        case Split(params=params):
            size = f", size x {params.ratio:g}" if params.ratio != 1 else ""
            return f"every message to {', '.join(output_names(name, transformation))}{size}"
        case Merge():
            return "all messages"
        case Join():
            which = "each message in one pair" if _is_once(transformation) else "all pairs"
            return f"pairs of one key that are at most {format_us(layout.timing[name].ttl_us)} apart, {which}"
    return f"messages of each key in {window_text(layout.timing[name])}"


def window_text(window: Timing) -> str:
    if window.is_session:
        return f"sessions, which end when none has come for {format_us(window.size_us)}"
    size = f"windows of {format_us(window.size_us)}"
    return size if window.slide_us == window.size_us else f"{size} every {format_us(window.slide_us)}"


def notes(description: Description) -> list[str]:
    """What is allowed but may not be meant."""
    layout = description.layout
    found = [f"{name} leads to no sink and is left out" for name in layout.unused]
    for name, transformation in description.transformations.items():
        made_eps = layout.rates_eps[name][1]
        if isinstance(transformation, Join) and not _is_once(transformation) and made_eps > PAIRS_EPS_MAX:
            instead = "match 'once', a lower rate, more keys or a shorter ttl"
            found.append(f"{name} makes about {_eps(made_eps)}: give it {instead}")
    return found


def _is_once(transformation: AnyTransformation) -> bool:
    return isinstance(transformation, Join) and transformation.params.match is Pairing.ONCE


def _name(place: Place, description: Description) -> str:
    transformation = description.transformations.get(place.node)
    return output_names(place.node, transformation)[place.output] if isinstance(transformation, Split) else place.node


def _eps(rate: float) -> str:
    return f"{rate:,.0f}/s" if rate >= 10 else f"{rate:,.2g}/s"


def _columns(rows: list[tuple[str, str, str]]) -> list[str]:
    first, second = (max((len(row[i]) for row in rows), default=0) for i in (0, 1))
    return [f"  {name:<{first}}  {text:<{second}}  {figures}".rstrip() for name, text, figures in rows]
