"""Valid and invalid proofs of identity."""

from typing import Any

from waypost.client.identity import Identity
from waypost.server.identity.authenticator import Authenticator, Grant
from waypost.wire.frames import Auth

HOST = "relay.example:7000"


def fields_of(auth: Auth, nonce: str, origin: str = HOST) -> dict[str, Any]:
    """Return the arguments of `authenticate` for an `auth` operation."""
    return {
        "subject": auth.subject,
        "public_key": auth.public_key,
        "signature": auth.signature,
        "nonce": nonce,
        "origins": (origin,),
        "sealing_key": auth.sealing_key,
        "sealing_signature": auth.sealing_signature,
    }


def log_in(authenticator: Authenticator, identity: Identity, **instead: Any) -> Grant:
    """Run the whole handshake; `instead` replaces arguments of `authenticate`."""
    nonce = authenticator.challenge()
    return authenticator.authenticate(**fields_of(identity.prove(nonce, HOST), nonce) | instead)
