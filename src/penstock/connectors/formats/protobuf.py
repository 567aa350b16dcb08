"""Protobuf: columns of a message, values by the classes that are made of its descriptors on every worker."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from penstock.connectors.extras import installed
from penstock.connectors.formats.base import Encoding, Format, Read, Write
from penstock.connectors.formats.registry import HEAD_BYTES, Registry, head, number_of
from penstock.errors import BadRecord, InvalidOption, TypeMismatch
from penstock.types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DOUBLE,
    FLOAT,
    INT,
    STRING,
    TIMESTAMP,
    DataType,
    Field,
    Record,
    Schema,
    TypeKind,
    array_of,
    attribute,
    fit,
    map_of,
    struct_of,
)

_TIMESTAMP = "google.protobuf.Timestamp"
_WRAPPERS = {
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
}
_BIGINT_MAX = (1 << 63) - 1

Value = Callable[[Any], Any]


@dataclass(frozen=True)
class Protobuf(Format):
    """Protobuf by a message; build it with :func:`protobuf`."""

    files: tuple[bytes, ...]
    """Descriptors of the message's file and of those that it imports, those first."""
    message: str
    """Its full name."""
    registry: Registry | None
    subject: str | None
    kind = "protobuf"

    def resolved(self) -> Protobuf:
        return self

    @cached_property
    def _class(self) -> Any:
        names = ("descriptor_pb2", "descriptor_pool", "message_factory")
        descriptors, pools, factory = (installed(f"google.protobuf.{name}", "kafka") for name in names)
        pool = pools.DescriptorPool()
        for each in self.files:
            pool.Add(descriptors.FileDescriptorProto.FromString(each))
        return factory.GetMessageClass(pool.FindMessageTypeByName(self.message))

    def __getstate__(self) -> dict[str, Any]:
        return {name: self.__dict__[name] for name in ("files", "message", "registry", "subject")}

    def columns(self) -> Schema:
        return Schema(_fields(self._class.DESCRIPTOR, ()))

    @cached_property
    def _path(self) -> list[int]:
        """Where the message is in its file: the number of the message, and of those within."""
        path, descriptor = list[int](), self._class.DESCRIPTOR
        while descriptor is not None:
            siblings = descriptor.containing_type.nested_types if descriptor.containing_type else None
            siblings = siblings if siblings is not None else list(descriptor.file.message_types_by_name.values())
            path.insert(0, next(i for i, each in enumerate(siblings) if each.full_name == descriptor.full_name))
            descriptor = descriptor.containing_type
        return path

    def reader(self) -> Read:
        parse, has_head, path = self._class.FromString, self.registry is not None, self._path
        values = [_reading(each) for each in self._class.DESCRIPTOR.fields]
        undecodable = installed("google.protobuf.message", "kafka").DecodeError

        def read(value: bytes | None) -> list[object]:
            if value is None:
                raise BadRecord("the value is null.")
            if has_head:
                number_of(value)
                found, at = _indexes(value, HEAD_BYTES)
                if found != path:
                    raise BadRecord("it is another message of the file.")
                value = value[at:]
            try:
                message = parse(value)
            except undecodable as error:
                raise BadRecord(f"it is not a message of the type {self.message}: {error}.") from None
            return [each(message) for each in values]

        return read

    def encoding(self, schema: Schema, topic: str) -> Encoding:
        wanted = {each.name: each for each in self.columns().fields}
        for each in schema.fields:
            found = wanted.get(each.name)
            if found is None:
                what = f"column '{each.name}' is not in the message {self.message}."
                raise TypeMismatch(what=what, hint="Leave it out with select().")
            if found.type != each.type and not _widens(found.type, each.type):
                what = f"column '{each.name}' is {each.type.ddl}, and in the message {self.message} {found.type.ddl}."
                raise TypeMismatch(what=what)
        begin = b""
        if self.registry is not None:
            text = base64.b64encode(self.files[-1]).decode()
            number = self.registry.register(self.subject or f"{topic}-value", "PROTOBUF", text)
            begin = head(number) + _path_bytes(self._path)
        return _ProtobufEncoding(self, begin, schema)

    def describe(self) -> str:
        return f"protobuf {self.message}" + (f" by {self.registry.shown}" if self.registry is not None else "")


def _files(descriptor: Any) -> tuple[bytes, ...]:
    """Descriptors of a file and of what it imports, in the order in which they can be added."""
    found: dict[str, bytes] = {}

    def add(file: Any) -> None:
        for each in file.dependencies:
            add(each)
        found[file.name] = file.serialized_pb

    add(descriptor.file)
    return tuple(found.values())


def _fields(descriptor: Any, within: tuple[str, ...]) -> tuple[Field, ...]:
    if descriptor.full_name in within:
        raise TypeMismatch(what=f"message {descriptor.full_name} contains itself, which maps to no column.")
    inner = (*within, descriptor.full_name)
    return tuple(
        Field(each.name, _type(each, inner), nullable=bool(each.has_presence) or _is_many(each))
        for each in descriptor.fields
    )


def _is_many(field: Any) -> bool:
    return bool(field.is_repeated)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


def _type(field: Any, within: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return map_of(_one(entry["key"], within), _one(entry["value"], within))
    one = _one(field, within)
    return array_of(one) if _is_many(field) else one


def _one(field: Any, within: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return TIMESTAMP
        if name in _WRAPPERS:
            return _one(field.message_type.fields_by_name["value"], within)
        if name.startswith("google.protobuf."):
            raise TypeMismatch(what=f"field '{field.name}' is {name}, which maps to no column.")
        return struct_of(_fields(field.message_type, within))
    kinds = {
        field.CPPTYPE_BOOL: BOOLEAN,
        field.CPPTYPE_INT32: INT,
        field.CPPTYPE_INT64: BIGINT,
        field.CPPTYPE_UINT32: BIGINT,
        field.CPPTYPE_UINT64: BIGINT,
        field.CPPTYPE_FLOAT: FLOAT,
        field.CPPTYPE_DOUBLE: DOUBLE,
        field.CPPTYPE_ENUM: STRING,
        field.CPPTYPE_STRING: BINARY if field.type == field.TYPE_BYTES else STRING,
    }
    found: DataType = kinds[field.cpp_type]
    return found


def _reading(field: Any) -> Value:
    """What reads a field of a message."""
    name, one = field.name, _reading_one(field)
    if _is_map(field):
        value = _reading_one(field.message_type.fields_by_name["value"])
        return lambda message: {key: value(each) for key, each in getattr(message, name).items()}
    if _is_many(field):
        return lambda message: [one(each) for each in getattr(message, name)]
    if field.has_presence:
        return lambda message: one(getattr(message, name)) if message.HasField(name) else None
    return lambda message: one(getattr(message, name))


def _reading_one(field: Any) -> Value:
    if field.message_type is not None:
        name = field.message_type.full_name
        if name == _TIMESTAMP:
            return lambda at: at.seconds * 1_000_000 + at.nanos // 1000
        if name in _WRAPPERS:
            read = _reading_one(field.message_type.fields_by_name["value"])
            return lambda wrapped: read(wrapped.value)
        data_type = struct_of(_fields(field.message_type, ()))
        parts = [(each.name, _reading(each)) for each in field.message_type.fields]
        return lambda message: fit({part: read_part(message) for part, read_part in parts}, data_type)
    if field.enum_type is not None:
        names = {each.number: each.name for each in field.enum_type.values}
        return lambda number: names.get(number, str(number))
    if field.cpp_type == field.CPPTYPE_UINT64:
        return _checked
    return lambda value: value


def _checked(value: int) -> int:
    if value > _BIGINT_MAX:
        raise BadRecord(f"{value} is more than a bigint holds.")
    return value


def _widens(wanted: DataType, given: DataType) -> bool:
    if wanted.is_integer and given.is_integer:
        return wanted.bounds()[0] <= given.bounds()[0]
    return wanted.kind is TypeKind.DOUBLE and given.kind is TypeKind.FLOAT


@dataclass(frozen=True)
class _ProtobufEncoding(Encoding):
    format: Protobuf
    begin: bytes
    schema: Schema

    def encoder(self) -> Write:
        make, begin = self.format._class, self.begin
        fields = make.DESCRIPTOR.fields_by_name
        parts = [(attribute(each.name), _writing(fields[each.name])) for each in self.schema.fields]

        def write(rows: list[Record]) -> list[bytes]:
            found = []
            for row in rows:
                message = make()
                try:
                    for at, put in parts:
                        if (value := getattr(row, at)) is not None:
                            put(message, value)
                except (TypeError, ValueError) as error:
                    raise BadRecord(f"it does not fit the message {self.format.message}: {error}.") from None
                found.append(begin + message.SerializeToString())
            return found

        return write


def _writing(field: Any) -> Callable[[Any, Any], None]:
    """What puts a value into a message."""
    name = field.name
    if _is_map(field):
        value = field.message_type.fields_by_name["value"]
        if value.message_type is not None:
            put = _filling(value)

            def put_all(message: Any, items: dict[Any, Any]) -> None:
                for key, each in items.items():
                    put(getattr(message, name)[key], each)

            return put_all
        return lambda message, items: getattr(message, name).update(items)
    if field.message_type is not None:
        put = _filling(field)
        if _is_many(field):

            def add_all(message: Any, items: list[Any]) -> None:
                for each in items:
                    put(getattr(message, name).add(), each)

            return add_all
        return lambda message, value: put(getattr(message, name), value)
    if field.enum_type is not None:
        numbers: dict[str, int] = {each.name: each.number for each in field.enum_type.values}

        def number(text: str) -> int:
            if text not in numbers:
                raise ValueError(f"{text!r} is not in {field.enum_type.full_name}")
            return numbers[text]

        if _is_many(field):
            return lambda message, items: getattr(message, name).extend(map(number, items))
        return lambda message, value: setattr(message, name, number(value))
    if _is_many(field):
        return lambda message, items: getattr(message, name).extend(items)
    return lambda message, value: setattr(message, name, value)


def _filling(field: Any) -> Callable[[Any, Any], None]:
    """What fills a message within a message."""
    name = field.message_type.full_name
    if name == _TIMESTAMP:

        def stamp(message: Any, us: int) -> None:
            message.SetInParent()
            message.seconds, message.nanos = us // 1_000_000, us % 1_000_000 * 1000

        return stamp
    if name in _WRAPPERS:

        def wrap(message: Any, value: Any) -> None:
            message.SetInParent()
            message.value = value

        return wrap
    parts = [(attribute(each.name), _writing(each)) for each in field.message_type.fields]

    def fill(message: Any, record: Any) -> None:
        message.SetInParent()
        for at, put in parts:
            if (value := getattr(record, at)) is not None:
                put(message, value)

    return fill


def _indexes(value: bytes, at: int) -> tuple[list[int], int]:
    """Read which message of its file a value is, and where it begins; the first one is written as a zero alone."""

    def number() -> int:
        nonlocal at
        found = shift = 0
        while True:
            if at >= len(value):
                raise BadRecord("it ends before its message begins.")
            byte = value[at]
            at += 1
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (found >> 1) ^ -(found & 1)

    count = number()
    if not 0 <= count <= len(value):
        raise BadRecord("it does not say which message it is.")
    return [number() for _ in range(count)] or [0], at


def _path_bytes(path: list[int]) -> bytes:
    if path == [0]:
        return b"\0"
    found = bytearray()
    for each in (len(path), *path):
        number = each << 1
        while number > 0x7F:
            found.append(number & 0x7F | 0x80)
            number >>= 7
        found.append(number)
    return bytes(found)


def protobuf(message: Any, *, registry: str | None = None, subject: str | None = None) -> Protobuf:
    """Values in Protobuf, for ``stream.parse(…)`` and ``ps.kafka(…, format=…)``.

    Parameters
    ----------
    message : class
        The message, a class that ``protoc`` has made. Its fields are the columns: an enum is its name, a ``Timestamp``
        a timestamp, a message within a struct. Fields that know whether they were set are null where they were not.
    registry : str, optional
        Address of a schema registry, ``"http://host:8081"``; with a user ``"https://user:password@host"``, which is
        never shown. Values then begin with the number of their schema.
    subject : str, optional
        Writing: the subject in the registry; ``<topic>-value`` unless it is given.

    Examples
    --------
    >>> import penstock as ps
    >>> from google.protobuf.timestamp_pb2 import Timestamp
    >>> ps.protobuf(Timestamp).columns().ddl
    'seconds bigint not null, nanos int not null'
    """
    descriptor = getattr(message, "DESCRIPTOR", None)
    if not isinstance(message, type) or not hasattr(descriptor, "fields_by_name"):
        raise InvalidOption(option="message", given=message, allowed="a message class that protoc has made")
    if subject is not None and (not isinstance(subject, str) or not subject):
        raise InvalidOption(option="subject", given=subject, allowed="the name of a subject")
    assert descriptor is not None
    found = Protobuf(
        _files(descriptor), descriptor.full_name, None if registry is None else Registry(registry), subject
    )
    found.columns()  # refused here, where it is written
    if registry is not None:
        imported = [each.name for each in descriptor.file.dependencies if not each.name.startswith("google/protobuf/")]
        if imported:
            raise InvalidOption(
                option="registry",
                given=f"a message whose file imports {imported[0]}",
                allowed="one file without imports",
            )
    return found
