"""`holdfast keys`: API keys."""

from __future__ import annotations

import itertools
from typing import Annotated, Any, cast, get_args

import typer

from holdfast import models
from holdfast._cli.output import Output
from holdfast._cli.params import Json, Limit, Yes, example, time_option
from holdfast._cli.session import confirm, session
from holdfast.models.keys import Scope

app = typer.Typer(no_args_is_help=True, help="API keys. They need the scope admin.")

Sqs = Annotated[bool, typer.Option("--sqs", help="Also print the access key id and secret access key for SQS clients.")]
Id = Annotated[str, typer.Argument(metavar="ID", show_default=False)]


def _scopes(text: str) -> list[Scope]:
    """Parse scopes, such as `read+write`."""
    scopes = text.split("+")
    if wrong := set(scopes) - set(get_args(Scope)):
        raise typer.BadParameter(f"{wrong.pop()!r} is not a scope. Scopes are {', '.join(get_args(Scope))}.")
    return cast(list[Scope], scopes)


@app.command("list", epilog=example("holdfast keys list"))
def list_keys(limit: Limit = 1_000, as_json: Json = False) -> None:
    """List keys, without their secrets."""
    with session(as_json) as (client, out):
        found = itertools.islice(client.keys.list(), limit)
        if not out.many(found, "id", "name", "scopes", "prefixes", "tenant", "payloads", "state", "expires_at"):
            out.note("There are no keys.")


@app.command(epilog=example("holdfast keys show 01HV"))
def show(id: Id, as_json: Json = False) -> None:
    """Show a key, without its secret."""
    with session(as_json) as (client, out):
        out.one(client.keys.get(id))


@app.command(epilog=example("holdfast keys make worker-7 --scopes read+write --prefix mail"))
def make(
    name: Annotated[str, typer.Argument(show_default=False)],
    *,
    scopes: Annotated[
        Any,
        typer.Option(parser=_scopes, metavar="SCOPES", help="Scopes, such as read+write.", show_default=False),
    ],
    prefix: Annotated[
        list[str] | None, typer.Option(help="Only topics with this prefix. Repeatable.", show_default=False)
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Only this tenant's jobs.", show_default=False)] = None,
    expires_in: Annotated[int | None, time_option("How long the key is valid. Default: forever.")] = None,
    hide_payloads: Annotated[
        bool, typer.Option("--hide-payloads", help="The key sees jobs without their payloads and can't claim jobs.")
    ] = False,
    sqs: Sqs = False,
    as_json: Json = False,
) -> None:
    """Make a key. Prints only its secret to stdout, which is not shown again."""
    with session(as_json) as (client, out):
        made = client.keys.make(
            name,
            scopes,
            prefixes=prefix or None,
            tenant=tenant,
            expires_in_ms=expires_in,
            hide_payloads=hide_payloads,
            sqs=sqs,
        )
        _print_secret(out, made)


@app.command(epilog=example("holdfast keys rotate 01HV --grace 1h"))
def rotate(
    id: Id,
    grace: Annotated[int | None, time_option("How long the old secret stays valid. Default: not at all.")] = None,
    yes: Yes = False,
    sqs: Sqs = False,
    as_json: Json = False,
) -> None:
    """Give a key a new secret, and print it to stdout."""
    with session(as_json) as (client, out):
        if not (grace or yes):
            confirm(f"Invalidate the old secret of {id} at once?")
        _print_secret(out, client.keys.rotate(id, grace_ms=grace or 0, sqs=sqs))


@app.command(epilog=example("holdfast keys revoke 01HV --yes"))
def revoke(id: Id, yes: Yes = False, as_json: Json = False) -> None:
    """Revoke a key for good."""
    with session(as_json) as (client, out):
        if not yes:
            confirm(f"Revoke {id} ({client.keys.get(id).name}) for good?")
        out.did(client.keys.revoke(id), f"{id} is revoked.")


def _print_secret(out: Output, made: models.Secret) -> None:
    """Print only the secret to stdout, for scripts, and the rest to stderr."""
    out.did(made, made.secret)
    if made.sqs is not None and not out.as_json:
        out.note(f"AWS_ACCESS_KEY_ID={made.sqs.access_key_id}")
        out.note(f"AWS_SECRET_ACCESS_KEY={made.sqs.secret_access_key}")
    if not out.as_json:
        out.note(f"This is the secret of key {made.id} ({made.name}). It is not shown again.")
