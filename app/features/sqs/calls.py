"""A request to the SQS endpoint: its signer, its fields, and the queue that it names."""

from __future__ import annotations

from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from starlette.requests import Request

from app.base.keys import Key, Scope, key_id_of, secret_access_key
from app.errors import NotAQueue, TopicNotFound
from app.features.sqs import signature, store
from app.features.sqs.faults import SqsFault, invalid, missing, no_queue
from app.features.sqs.protocol import SqsRequest
from app.features.sqs.signature import Signature
from app.features.sqs.store import Attributes, Extras, Queues, name_of_arn
from app.http.access import SIGNED
from app.http.context import Context
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import NAME

T = TypeVar("T", bound=msgspec.Struct)
Answer = dict[str, Any]
REGION: Final = "us-east-1"  # of ARNs, where a request is not signed for one


class OfQueue(msgspec.Struct, rename="pascal"):
    """A request about a queue."""

    queue_url: str | None = None


class SqsCall(msgspec.Struct, frozen=True):
    """A request. If sign-in is on, its signature was checked."""

    request: Request
    context: Context
    asked: SqsRequest
    region: str

    def fields(self, kind: type[T]) -> T:
        """Convert the fields to a struct. Raises SqsFault."""
        return convert(self.asked.fields, kind)

    def let_in(
        self, scope: Scope, name: str | None = None, *, consumes: bool = False, confines: bool = False
    ) -> Key | None:
        """Check that the signer may do this, and return the key. Raises Unauthorized, Forbidden, Throttled."""
        return self.context.access.check(self.request, scope, name, consumes=consumes, confines=confines)

    def name(self, url: str | None) -> str:
        """The name of the queue in a URL, or in the request's path. Raises SqsFault."""
        name = self.asked.queue if url is None else url.rstrip("/").rpartition("/")[2]
        if not name:
            raise missing("QueueUrl")
        if NAME.match(name) is None:
            raise no_queue()
        return name

    async def queue(self, name: str) -> Policy:
        """Raises SqsFault."""
        try:
            return await self.context.policies.queue(name)
        except (TopicNotFound, NotAQueue):
            raise no_queue() from None

    async def extras(self, policy: Policy) -> Extras:
        """The queue's attributes and tags that topics don't have."""
        return await self.context.core(Queues).extras(policy)

    def url(self, name: str) -> str:
        """The address of a queue, on the host that the request named."""
        host = self.request.headers.get("host", "localhost")
        return f"{self.context.access.scheme(self.request)}://{host}/{self.context.settings.sqs_account}/{name}"

    def arn(self, name: str) -> str:
        """The ARN of a queue."""
        return f"arn:aws:sqs:{self.region}:{self.context.settings.sqs_account}:{name}"

    async def queue_of_arn(self, arn: str, parameter: str) -> Policy:
        """The queue that an ARN names. Raises SqsFault."""
        try:
            return await self.context.policies.queue(name_of_arn(arn))
        except (TopicNotFound, NotAQueue):
            raise SqsFault("ResourceNotFoundException", f"The queue of {parameter} does not exist.", 404) from None


async def open_call(request: Request, context: Context, asked: SqsRequest, body: bytes) -> SqsCall:
    """Check the signature of a request if sign-in is on. Raises SqsFault."""
    signed = signature.read(request)
    directory = context.access.directory
    if directory.guarded:
        if signed is None:
            raise SqsFault(
                "MissingAuthenticationToken", "Sign-in is on: sign the request with the access key of an API key.", 403
            )
        request.scope[SIGNED] = await _signer(context, request, signed, body)
    return SqsCall(request, context, asked, REGION if signed is None else signed.region)


async def _signer(context: Context, request: Request, signed: Signature, body: bytes) -> Key:
    directory = context.access.directory
    secret, key_id = (await directory.signer()).secret, key_id_of(signed.access_key)
    fits = signature.check(request, signed, body, partial(secret_access_key, secret, key_id))
    key = directory.key(key_id, fits)
    if key is None:
        await directory.look_again()  # it may have been made elsewhere a moment ago
        key = directory.key(key_id, fits)
    if key is not None:
        return key
    if not key_id or directory.key(key_id, lambda _digest: True) is None:
        raise SqsFault("InvalidClientTokenId", "No live API key has this access key id.", 403)
    raise SqsFault(
        "SignatureDoesNotMatch",
        "The signature does not match: check the secret access key, and that nothing changed the request on its way.",
        403,
    )


async def write_extras(call: SqsCall, policy: Policy, attributes: Attributes, tags: Attributes) -> None:
    """Store what SQS alone has of a queue, and tell the other processes."""
    await store.write(call.context.pools.rest, policy.topic.id, attributes, tags)
    call.context.core(Queues).forget(policy.topic.id)
    call.context.policies.announce(policy.topic.name)


def convert(fields: dict[str, Any], kind: type[T]) -> T:
    """Convert the fields of a request, or of a batch's entry, to a struct. Raises SqsFault."""
    for field in msgspec.structs.fields(kind):
        if field.required and field.encode_name not in fields:
            raise missing(field.encode_name)
    try:
        return msgspec.convert(fields, kind, strict=False)
    except msgspec.ValidationError as error:
        raise invalid(f"{error}.") from None
