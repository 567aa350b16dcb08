"""Select and with_columns as operations: columns, and records that a function such as explode makes among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from penstock.errors import PenstockError, TypeMismatch
from penstock.expr import Column, infer
from penstock.expr.generating import Generator, generator_of, names_of
from penstock.operators import Explode, Project
from penstock.types import TypeKind

if TYPE_CHECKING:
    from penstock.pipeline.streams.base import Builder
    from penstock.pipeline.streams.stream import Stream


def project(
    stream: Builder, columns: Sequence[Column], name: str | None, on_error: str, *, keep: bool = False
) -> Stream:
    """The stream with these columns; where one of them is made by explode, a record for each element.

    The other columns are computed once for each record, not for each element.
    """
    generating = [column for column in columns if generator_of(column) is not None]
    if not generating:
        return stream._then(Project(tuple(columns), keep=keep), name, on_error)
    label = name or ("with_columns" if keep else "select")
    if len(generating) > 1:
        told = " and ".join(str(generator_of(each)) for each in generating[:2])
        raise TypeMismatch(
            what=f"{told} would multiply each other.", operation=label, hint="Select one after the other."
        )
    (column,) = generating
    made = generator_of(column)
    assert made is not None
    generator = made.payload
    assert isinstance(generator, Generator)
    (held,) = made.args
    try:
        kind = infer(held, stream.schema).type
    except PenstockError as error:
        raise error.at(label) from None
    names = names_of(column, is_map=kind.kind is TypeKind.MAP)
    position, into = (names[0], names[1:]) if generator.position else (None, names)
    if not into:
        raise TypeMismatch(what=f"{made} makes more than one column.", operation=label, hint='Use alias("pos", "x").')
    place = into[0]  # the array stands where its elements come to stand
    before = [held.alias(place) if each is column else each for each in columns]
    prepared = stream._then(Project(tuple(before), keep=keep), None, on_error)
    return prepared._then(Explode(place, into, position, generator.outer), name, on_error)
