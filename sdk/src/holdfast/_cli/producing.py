"""`holdfast put` and `holdfast enqueue`."""

from __future__ import annotations

import secrets
import shlex
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Final

import typer
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from holdfast._cli.lines import BadLine, Batches, Form, Line, key_of, lines
from holdfast._cli.output import Output, console
from holdfast._cli.params import Json, TopicName, json_object, json_value, moment, time_option
from holdfast._cli.session import Exit, Refused, session
from holdfast._client import SyncTopic

STDIN: Final = "-"
BATCH: Final = 1_000


def put(
    topic: TopicName,
    data: Annotated[str | None, typer.Argument(metavar="DATA", help="JSON, unless --text.", show_default=False)] = None,
    file: Annotated[
        typer.FileBinaryRead | None,
        typer.Option("--file", "-f", help="Read DATA from it; -: stdin.", show_default=False),
    ] = None,
    *,
    text: Annotated[bool, typer.Option("--text", help="DATA is text.")] = False,
    raw: Annotated[bool, typer.Option("--bytes", help="DATA is bytes; needs --file.")] = False,
    tag: Annotated[str | None, typer.Option(help="The job's tag.", show_default=False)] = None,
    priority: Annotated[
        int | None,
        typer.Option(min=-32_768, max=32_767, help="0 to 9; any number in a lowest_first topic.", show_default=False),
    ] = None,
    delay: Annotated[int | None, time_option("How long until the job is ready.")] = None,
    run_at: Annotated[
        datetime | None,
        typer.Option(parser=moment, metavar="MOMENT", help="When the job becomes ready.", show_default=False),
    ] = None,
    ttl: Annotated[int | None, time_option("How long until the job expires.")] = None,
    max_deliveries: Annotated[
        int | None, typer.Option(min=0, help="Most deliveries of the job.", show_default=False)
    ] = None,
    key: Annotated[str | None, typer.Option(help="Replaces a waiting job with this key.", show_default=False)] = None,
    group: Annotated[str | None, typer.Option(help="One job of a group runs at a time.", show_default=False)] = None,
    dedupe_id: Annotated[
        str | None, typer.Option(help="Duplicates in the dedupe window are dropped.", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="The job's tenant.", show_default=False)] = None,
    user_id: Annotated[str | None, typer.Option(help="The application's user.", show_default=False)] = None,
    meta: Annotated[
        Any, typer.Option(parser=json_object, metavar="OBJECT", help="Returned with the job.", show_default=False)
    ] = None,
    content_type: Annotated[str | None, typer.Option(help="The content type of DATA.", show_default=False)] = None,
    idempotency_key: Annotated[
        str | None, typer.Option(help="A second put with this key has no effect.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Write one job to a queue, or one record to a log."""
    payload = _payload(data, file, text, raw)
    with session(as_json) as (client, out):
        done = client.topic(topic).enqueue(
            payload,
            tag=tag,
            priority=priority,
            delay_ms=delay,
            run_at=run_at,
            ttl_ms=ttl,
            max_deliveries=max_deliveries,
            key=key,
            group=group,
            dedupe_id=dedupe_id,
            tenant=tenant,
            user_id=user_id,
            meta=meta,
            content_type=content_type,
            idempotency_key=idempotency_key,
        )
        out.did(done, f"{topic} {done.seq}{' already existed' if done.duplicate else ''}")


def _payload(data: str | None, file: BinaryIO | None, text: bool, raw: bool) -> Any:
    if (data is None) == (file is None):
        raise typer.BadParameter("Pass either DATA or --file.")
    if raw:
        if file is None or text:
            raise typer.BadParameter("--bytes needs --file, and can't be used with --text.")
        return file.read()
    try:
        content = data if file is None else file.read().decode()
    except UnicodeDecodeError as error:
        raise typer.BadParameter("The file is not UTF-8. Use --bytes.") from error
    try:
        return content if text else json_value(content or "")
    except typer.BadParameter as error:
        raise typer.BadParameter(f"{error} For text, use --text.") from error


def enqueue(
    topic: TopicName,
    files: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="FILE", help="Files with one record per line. Default, or -: stdin.", show_default=False
        ),
    ] = None,
    *,
    form: Annotated[
        Form, typer.Option("--lines", help="A line is JSON data, text data, or a record with data, tag and so on.")
    ] = Form.JSON,
    batch: Annotated[int, typer.Option(min=1, max=10_000, help="Records per request.")] = BATCH,
    run: Annotated[
        str | None, typer.Option(help="A name. Runs with the same name write a line once.", show_default=False)
    ] = None,
    from_line: Annotated[int, typer.Option(min=1, help="First line to write, in the first file.")] = 1,
    as_json: Json = False,
) -> None:
    """Write many records from files or stdin. If it stops early, it prints how to continue."""
    sources = files or [STDIN]
    if sources.count(STDIN) > 1:
        raise typer.BadParameter("stdin can be read only once.")
    for source in sources:
        if source != STDIN and not Path(source).is_file():
            raise typer.BadParameter(f"There is no file {source}.")
    with session(as_json, patient=True) as (client, out):
        taking = Taking(client.topic(topic), out, run or secrets.token_hex(4), form, batch)
        try:
            taking.all_of(sources, from_line)
        except BaseException:
            taking.tell_where_it_stopped()
            raise
        again = f", {taking.deduped} of them already before" if taking.deduped else ""
        out.did({"taken": taking.taken, "deduped": taking.deduped}, f"{taking.taken} written{again}.")


class Taking:
    """Writes files to a topic in batches. Batches that an earlier command with the same `run` has written are not
    written again within the topic's idempotency window. The service says how many records such a batch had, and the
    next one begins after them, even if the file was shorter or the batches were larger."""

    def __init__(self, topic: SyncTopic, out: Output, run: str, form: Form, size: int) -> None:
        self._topic = topic
        self._out = out
        self._run = run
        self._form = form
        self._size = size
        self._left: list[str] = []
        self._line = 1  # next line of the first file that is left
        self.taken = 0
        self.deduped = 0

    def all_of(self, sources: list[str], from_line: int) -> None:
        """Write the files, one after another. Raises Refused for a bad line, and the client's errors."""
        self._left, self._line = list(sources), from_line
        with _progress(sources, self._out) as advance:
            while self._left:
                with _opened(self._left[0]) as file:
                    batches = Batches(lines(file, self._form, self._line), self._size)
                    try:
                        while batch := batches.next():
                            advance(self._take(batches, batch), self.taken)
                    except BadLine as error:
                        raise Refused("bad_line", f"{_named(self._left[0])}, {error}", exit=Exit.USAGE) from error
                self._left.pop(0)
                self._line = 1

    def _take(self, batches: Batches, batch: list[Line]) -> int:
        """Write a batch. Returns how many bytes of the file are done."""
        source = self._left[0]
        key = key_of(self._run, source, batch[0])
        done = self._topic.enqueue_many([line.record for line in batch], idempotency_key=key)
        if done.deduped:
            batch = batches.as_taken(batch, done.count)
            self.deduped += len(batch)
        self.taken += len(batch)
        self._line = batch[-1].number + 1
        if self._out.as_json:
            line = {"source": source, "first_line": batch[0].number, "last_line": batch[-1].number, "count": len(batch)}
            self._out.one(line | {"deduped": done.deduped, "first_seq": done.first_seq, "last_seq": done.last_seq})
        return sum(line.size for line in batch)

    def tell_where_it_stopped(self) -> None:
        """Print to stderr how to continue. The last request may have taken effect; its idempotency key makes a repeat
        harmless."""
        if not self._left:
            return
        on = ["holdfast", "enqueue", self._topic.name, *self._left, "--run", self._run]
        on += [] if self._form is Form.JSON else ["--lines", self._form.value]
        on += [] if self._size == BATCH else ["--batch", str(self._size)]
        on += [] if self._line == 1 else ["--from-line", str(self._line)]
        place = f"line {self._line} of {_named(self._left[0])}"
        self._out.warn(
            {"stopped": {"source": self._left[0], "line": self._line, "taken": self.taken, "run": self._run}},
            f"Stopped before {place}: {self.taken} written. Continue with: {shlex.join(on)}",
        )


@contextmanager
def _progress(sources: list[str], out: Output) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on stderr, in a terminal. Call the value with a batch's bytes and the total of written records."""
    screen = console(stderr=True)
    total = None if STDIN in sources else sum(Path(source).stat().st_size for source in sources)
    columns = (TextColumn("{task.fields[taken]} written"), BarColumn(), DownloadColumn(), TimeRemainingColumn())
    with Progress(*columns, console=screen, disable=out.as_json or not screen.is_terminal, transient=True) as bar:
        task = bar.add_task("", total=total, taken=0)
        yield lambda size, taken: bar.update(task, advance=size, taken=taken)


def _named(source: str) -> str:
    return "stdin" if source == STDIN else source


def _opened(source: str) -> AbstractContextManager[BinaryIO]:
    try:
        return nullcontext(sys.stdin.buffer) if source == STDIN else Path(source).open("rb")
    except OSError as error:
        raise Refused("unreadable", f"{source}: {error.strerror}", exit=Exit.USAGE) from error
