"""Authentication: challenges, tokens, and the rotation of keys."""

import asyncio
from functools import partial

from waypost.server.http.callers import Access, client_address
from waypost.server.http.contract import (
    NO_BODY,
    Answer,
    AnyOperation,
    Call,
    NoParameters,
    Operation,
    Reply,
    json_body,
)
from waypost.server.origins import origins_of
from waypost.wire.http_bodies import ChallengeResponse, TokenRequest, TokenResponse
from waypost.wire.name_bodies import RotationRequest, RotationResponse


async def give_challenge(call: Call[NoParameters, None]) -> Reply:
    """Return a nonce to sign."""
    return Reply(ChallengeResponse(nonce=call.context.authenticator.challenge()))


async def give_token(call: Call[NoParameters, TokenRequest]) -> Reply:
    """Return a token for a signed challenge; bind a new subject first, in a thread."""
    request = call.body
    authenticate = partial(
        call.context.authenticator.authenticate,
        subject=request.subject,
        public_key=request.public_key,
        signature=request.signature,
        nonce=request.nonce,
        origins=origins_of(call.request.scope),
        sealing_key=request.sealing_key,
        sealing_signature=request.sealing_signature,
        address=client_address(call.request.scope),
        now_ms=call.context.relay.now_us() // 1000,
    )
    grant = await asyncio.to_thread(authenticate)
    call.context.mailboxes.open_for(grant.subject)  # it must exist before receipts for the agent do
    return Reply(
        TokenResponse(subject=grant.subject, token=grant.token, expires_at=grant.expires_at)
    )


async def rotate_key(call: Call[NoParameters, RotationRequest]) -> Reply:
    """Move a name from the key that owns it to a new one."""
    await call.context.names.rotate(call.body, origins_of(call.request.scope))
    return Reply(RotationResponse(subject=call.body.subject, public_key=call.body.new_public_key))


OPERATIONS: tuple[AnyOperation, ...] = (
    Operation(
        method="POST",
        path="/v1/auth/challenge",
        access=Access.ANYONE,
        summary="Request a challenge",
        description="Returns a nonce, valid for one attempt within a minute.",
        tag="auth",
        handler=give_challenge,
        parameters=NoParameters,
        body=NO_BODY,
        answer=Answer(ChallengeResponse),
    ),
    Operation(
        method="POST",
        path="/v1/auth/token",
        access=Access.ANYONE,
        summary="Exchange a signed challenge for a token",
        description=(
            "Sign the lines `waypost-auth-1`, origin (the `host:port` you connect to, a name of the"
            " relay), nonce, subject and public key, joined by line feeds, with your Ed25519 key. A"
            " subject belongs to the first key that authenticates as it, or to the one that the"
            " operator bound. A token is valid for 15 minutes, and ends when the subject is freed."
        ),
        tag="auth",
        handler=give_token,
        parameters=NoParameters,
        body=json_body(TokenRequest),
        answer=Answer(TokenResponse),
        rejections={
            401: "The signature is invalid, or its challenge has expired or was used.",
            403: "The subject belongs to another key, or needs the operator; or the key holds as"
            " many names as it may.",
            429: "Too many new names at once; see `retry_after_ms`.",
        },
    ),
    Operation(
        method="POST",
        path="/v1/auth/rotate",
        access=Access.ANYONE,
        summary="Replace the key of an agent",
        description=(
            "Sign the lines `waypost-rotate-1`, origin, nonce, subject, public key and new public"
            " key, joined by line feeds, with the key that owns the subject and with the new one."
            " The old key is rejected from then on: its connections end, and its tokens are"
            " invalid. The mailbox stays."
        ),
        tag="auth",
        handler=rotate_key,
        parameters=NoParameters,
        body=json_body(RotationRequest),
        answer=Answer(RotationResponse),
        rejections={
            401: "A signature is invalid, or its challenge has expired or was used.",
            403: "The subject belongs to another key, or this one was revoked; or the new key holds"
            " as many names as it may.",
            404: "The subject belongs to no key.",
            429: "Too many changes at once; see `retry_after_ms`.",
        },
    ),
)
