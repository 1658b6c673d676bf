"""Keys for which a signature of any text can be written down without a private key."""

import httpx

from tests.harness.small_order_keys import ANY_TEXT_SIGNATURE, IDENTITY, library_accepts
from tests.server.conftest import SocketRelay
from waypost.wire import frames
from waypost.wire.handshake import from_text


def test_the_library_alone_accepts_the_forged_signature() -> None:
    assert library_accepts(from_text(IDENTITY), from_text(ANY_TEXT_SIGNATURE), b"any text")


async def test_a_key_of_small_order_gets_no_token(served: SocketRelay) -> None:
    async with httpx.AsyncClient(base_url=served.url, trust_env=False) as client:
        nonce = (await client.post("/v1/auth/challenge")).json()["nonce"]
        forged = {
            "subject": "agent.a",
            "public_key": IDENTITY,
            "signature": ANY_TEXT_SIGNATURE,
            "nonce": nonce,
        }
        rejected = await client.post("/v1/auth/token", json=forged)
    assert rejected.status_code == 400
    assert "small order" in rejected.json()["error"]
    assert not served.context.authenticator.has_authenticated("agent.a")


async def test_a_key_of_small_order_opens_no_connection(served: SocketRelay) -> None:
    agent = await served.dial()
    await agent.expect(frames.Challenge)
    await agent.send_frame(
        frames.Auth(subject="agent.a", public_key=IDENTITY, signature=ANY_TEXT_SIGNATURE)
    )
    assert (await agent.end()).code == frames.CLOSE_NOT_AUTHENTICATED
    assert not served.context.authenticator.has_authenticated("agent.a")


async def test_the_operator_cannot_bind_a_key_of_small_order(served: SocketRelay) -> None:
    token = (served.data_dir / "operator-token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(base_url=served.url, headers=headers, trust_env=False) as client:
        rejected = await client.put("/v1/names/agent.a", json={"public_key": IDENTITY})
    assert rejected.status_code == 400
    assert "small order" in rejected.json()["error"]
