"""Turns request bodies into payloads: forms become JSON objects, everything else stays as it is."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl

import msgspec
from python_multipart.exceptions import FormParserError
from python_multipart.multipart import MultipartParser, parse_options_header

from app.errors import InvalidRequest, UnsupportedMediaType
from app.http.fields import encode
from app.http.payloads import JSON, TEXT, check_type, stored_type, to_base64

if TYPE_CHECKING:
    from python_multipart.multipart import MultipartCallbacks

FORM: Final = "application/x-www-form-urlencoded"
MULTIPART: Final = "multipart/form-data"
MAX_FIELDS: Final = 1_000  # of a form, including files
MAX_FILES: Final = 20
MAX_NAME_BYTES: Final = 256  # of a field and of a file
UTF_8: Final = {"utf-8", "utf8", "us-ascii"}  # accepted charsets

_BROKEN: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")

KINDS: Final = {JSON: "json", FORM: "form", MULTIPART: "multipart", TEXT: "text"}  # for the metrics


class MediaType(msgspec.Struct, frozen=True):
    """A body's media type: `name` in lower case without parameters, the `whole` header, and a multipart `boundary`."""

    name: str
    whole: str
    boundary: bytes

    @property
    def kind(self) -> str:
        """The type's name in the metrics."""
        return KINDS.get(self.name, "other")


def media_type(header: str, accepts: tuple[str, ...]) -> MediaType:
    """Parse a content-type header. Raises UnsupportedMediaType unless it is in `accepts` and text is UTF-8."""
    name = header.partition(";")[0].strip().lower()
    if name not in accepts:
        sent = f"It does not accept {name[:80]!r}." if name else "Set the content-type header to one of them."
        raise UnsupportedMediaType(f"This topic accepts {', '.join(accepts)}. {sent}", {"accepts": list(accepts)})
    _, options = parse_options_header(header.encode("latin-1"))
    charset = options.get(b"charset", b"utf-8").decode("latin-1").lower()
    if name in KINDS and charset not in UTF_8:
        raise UnsupportedMediaType(f"The body must be UTF-8, not {charset[:80]!r}.")
    return MediaType(name, header.strip(), options.get(b"boundary", b""))


def payload_of(body: bytes, media: MediaType) -> tuple[bytes, str | None]:
    """The payload for a body, and its content type, None for JSON. Raises InvalidRequest."""
    match media.name:
        case "application/x-www-form-urlencoded":
            return _json_of(_read_urlencoded(body))
        case "multipart/form-data":
            return _json_of(_read_multipart(body, media.boundary))
        case "application/json" | "text/plain":
            return body, stored_type(body, media.name)
        case _:
            return body, stored_type(body, check_type(media.whole))


class Fields:
    """A form's fields, limited in number and length. Each is a string or a file; fields with one name become a list."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}
        self._count = 0

    def add(self, name: str, value: object) -> None:
        self._count += 1
        if self._count > MAX_FIELDS:
            raise InvalidRequest(f"A form must have at most {MAX_FIELDS} fields.")
        if len(name.encode()) > MAX_NAME_BYTES:
            raise InvalidRequest(f"The name of a field must have at most {MAX_NAME_BYTES} bytes: {name[:80]!r}.")
        if "\0" in name or (isinstance(value, str) and "\0" in value):
            raise InvalidRequest("The form has a NUL character (U+0000), which can't be stored.")
        self._values.setdefault(name, []).append(value)

    def as_object(self) -> dict[str, Any]:
        return {name: values[0] if len(values) == 1 else values for name, values in self._values.items()}


def _json_of(fields: Fields) -> tuple[bytes, None]:
    return encode(fields.as_object()), None


def _read_urlencoded(body: bytes) -> Fields:
    fields = Fields()
    if _BROKEN.search(body):  # no browser sends this, and urllib takes most of a second for a body full of them
        raise InvalidRequest("The form has a '%' without two hexadecimal digits.")
    try:
        pairs = parse_qsl(
            body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MAX_FIELDS, separator="&"
        )
    except UnicodeDecodeError:
        raise InvalidRequest("The form is not UTF-8, or not percent-encoded.") from None
    except ValueError:
        raise InvalidRequest(f"A form must have at most {MAX_FIELDS} fields.") from None
    for name, value in pairs:
        fields.add(name, value)
    return fields


class _Part(msgspec.Struct):
    header: bytearray = msgspec.field(default_factory=bytearray)  # the part of a header's name received so far
    value: bytearray = msgspec.field(default_factory=bytearray)
    headers: dict[bytes, bytes] = msgspec.field(default_factory=dict)
    data: bytearray = msgspec.field(default_factory=bytearray)


class _Parts:
    """Collects a multipart form's fields from the parser's callbacks."""

    def __init__(self) -> None:
        self.fields = Fields()
        self.ended = False
        self._files = 0
        self._part = _Part()

    def callbacks(self) -> MultipartCallbacks:
        return {
            "on_part_begin": self.on_part_begin,
            "on_header_field": self.on_header_field,
            "on_header_value": self.on_header_value,
            "on_header_end": self.on_header_end,
            "on_part_data": self.on_part_data,
            "on_part_end": self.on_part_end,
            "on_end": self.on_end,
        }

    def on_part_begin(self) -> None:
        self._part = _Part()

    def on_header_field(self, data: bytes, start: int, end: int) -> None:
        self._part.header += data[start:end]

    def on_header_value(self, data: bytes, start: int, end: int) -> None:
        self._part.value += data[start:end]

    def on_header_end(self) -> None:
        part = self._part
        part.headers[bytes(part.header).lower()] = bytes(part.value)
        part.header, part.value = bytearray(), bytearray()

    def on_part_data(self, data: bytes, start: int, end: int) -> None:
        self._part.data += data[start:end]

    def on_part_end(self) -> None:
        headers = self._part.headers
        kind, options = parse_options_header(headers.get(b"content-disposition", b""))
        if kind != b"form-data" or b"name" not in options:
            raise InvalidRequest("Each part of a form must have content-disposition: form-data, with a name.")
        name = _text(options[b"name"], "The name of a field")
        if b"filename" not in options:
            self.fields.add(name, _text(self._part.data, f"The field {name[:80]!r}"))
            return
        self._files += 1
        if self._files > MAX_FILES:
            raise InvalidRequest(f"A form must have at most {MAX_FILES} files.")
        filename = _text(options[b"filename"], "The name of a file")
        if len(filename.encode()) > MAX_NAME_BYTES or "\0" in filename:
            raise InvalidRequest(f"The name of a file must have at most {MAX_NAME_BYTES} bytes and no NUL.")
        content_type = headers.get(b"content-type", b"application/octet-stream").decode("latin-1").strip()
        file = {"filename": filename, "content_type": check_type(content_type)}
        self.fields.add(name, {**file, "$base64": to_base64(bytes(self._part.data)).decode()})

    def on_end(self) -> None:
        self.ended = True


def _read_multipart(body: bytes, boundary: bytes) -> Fields:
    if not 0 < len(boundary) <= 70:  # RFC 2046
        raise InvalidRequest("A multipart form must have a boundary of 1 to 70 bytes in its content-type.")
    parts = _Parts()
    try:
        MultipartParser(boundary, parts.callbacks()).write(body)
    except FormParserError as error:
        raise InvalidRequest(f"The body is not a multipart form: {str(error)[:200]}.") from None
    if not parts.ended:
        raise InvalidRequest("The body is not a multipart form: it ends before its last boundary.")
    return parts.fields


def _text(data: bytes | bytearray, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise InvalidRequest(f"{what} is not UTF-8.") from None
