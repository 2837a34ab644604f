"""The providers' models on Amazon Bedrock and Google Vertex AI, through the SDKs' own clients and credentials."""

import json
import subprocess
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from delegate.models.providers import Endpoint, connect
from delegate.types.errors import ProviderError
from delegate.types.ports import ChatClient, ChatRequest, Message
from tests.models.providers.conftest import KEY
from tests.support import warm
from tests.support.model_server import Fault, ModelServer, Reply

ASK = ChatRequest("claude-haiku-5-5", "You are a child.", [Message("user", "odd \udcff ü")], max_output_tokens=99)
with_boto3 = pytest.mark.skipif(find_spec("boto3") is None, reason="boto3 isn't installed")


@pytest.fixture
async def clients() -> AsyncIterator[list[ChatClient]]:
    opened: list[ChatClient] = []
    yield opened
    for client in opened:
        await client.aclose()


def bedrock(server: ModelServer, clients: list[ChatClient], *, region: str = "us-east-1") -> ChatClient:
    clients.append(connect(Endpoint("anthropic", server.url, "none", platform="bedrock", region=region)))
    return clients[-1]


def vertex(protocol: Literal["anthropic", "google"], server: ModelServer, clients: list[ChatClient]) -> ChatClient:
    url = f"{server.url}/v1"
    endpoint = Endpoint(protocol, url, "none", platform="vertex", region="europe-west1", project="my-project")
    clients.append(connect(endpoint))
    return clients[-1]


@pytest.fixture
def aws_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", KEY)
    for name in ("AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def google_account(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A service account whose tokens come from a server on this machine."""
    token = {"access_token": "ya29.dummy", "expires_in": 3600, "token_type": "Bearer"}
    with ModelServer([], others=lambda call: Fault(200, token, {"content-type": "application/json"})) as server:
        key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        account = {"type": "service_account", "client_email": "me@example.com", "private_key": pem}
        Path("account.json").write_text(json.dumps({**account, "token_uri": f"{server.url}/token"}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "account.json")
        yield


@with_boto3
@pytest.mark.usefixtures("aws_keys")
async def test_bedrock_gets_signed_requests(clients: list[ChatClient]) -> None:
    with ModelServer([Reply("hello")]) as server:
        reply = await bedrock(server, clients).complete(ASK)

    [call] = server.calls
    assert (reply.text, reply.stop) == ("hello", "end")
    assert (call.path, call.model) == ("/model/claude-haiku-5-5/invoke", "claude-haiku-5-5")
    assert (call.texts, call.system) == (["odd ? ü"], "You are a child.")
    assert call.headers["authorization"].startswith("AWS4-HMAC-SHA256 Credential=AKIAEXAMPLE/")
    assert "/us-east-1/bedrock/aws4_request" in call.headers["authorization"]
    assert "model" not in call.body
    assert call.body["anthropic_version"]


@with_boto3
@pytest.mark.usefixtures("aws_keys")
async def test_bedrocks_errors_have_their_faults(clients: list[ChatClient]) -> None:
    faults = [
        Fault(429, {"message": "Too many tokens"}, {"x-amzn-errortype": "ThrottlingException:http://internal"}),
        Fault(400, {"message": "Input is too long for requested model."}),
        Fault(403, {"message": "The security token included in the request is invalid."}),
    ]
    with ModelServer(faults) as server:
        client = bedrock(server, clients)
        found: list[str] = []
        for _ in faults:
            with pytest.raises(ProviderError) as caught:
                await client.complete(ASK)
            found.append(caught.value.fault)

    assert found == ["rate_limited", "context_overflow", "auth"]
    assert len(server.calls) == 3


@with_boto3
async def test_bedrock_without_credentials_says_so(clients: list[ChatClient], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_BEARER_TOKEN_BEDROCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "none")
    monkeypatch.setenv("AWS_CONFIG_FILE", "none")
    with ModelServer([Reply("never asked")]) as server, pytest.raises(ProviderError) as caught:
        # The SDK keeps the credentials of each region.
        await bedrock(server, clients, region="eu-west-1").complete(ASK)

    assert caught.value.fault == "auth"
    assert "the credentials for bedrock can't be used" in str(caught.value)
    assert server.calls == []


@pytest.mark.usefixtures("google_account")
async def test_claude_on_vertex_gets_googles_token(clients: list[ChatClient]) -> None:
    with ModelServer([Reply("hello")]) as server:
        reply = await vertex("anthropic", server, clients).complete(ASK)

    [call] = server.calls
    assert reply.text == "hello"
    publisher = "projects/my-project/locations/europe-west1/publishers/anthropic"
    assert call.path == f"/v1/{publisher}/models/claude-haiku-5-5:rawPredict"
    assert (call.model, call.texts) == ("claude-haiku-5-5", ["odd ? ü"])
    assert call.headers["authorization"] == "Bearer ya29.dummy"
    assert call.body["anthropic_version"]


@pytest.mark.usefixtures("google_account")
async def test_gemini_on_vertex_gets_googles_token(clients: list[ChatClient]) -> None:
    with ModelServer([Reply("hello")]) as server:
        reply = await vertex("google", server, clients).complete(ASK)

    [call] = server.calls
    assert reply.text == "hello"
    publisher = "projects/my-project/locations/europe-west1/publishers/google"
    assert call.path == f"/v1/{publisher}/models/claude-haiku-5-5:streamGenerateContent?alt=sse"
    assert call.headers["authorization"] == "Bearer ya29.dummy"


@pytest.mark.parametrize("protocol", ["anthropic", "google"])
async def test_vertex_without_credentials_says_so(
    protocol: Literal["anthropic", "google"], clients: list[ChatClient], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "no-such-file.json")
    with ModelServer([Reply("never asked")]) as server, pytest.raises(ProviderError) as caught:
        await vertex(protocol, server, clients).complete(ASK)

    assert caught.value.fault == "auth"
    assert "no-such-file.json" in str(caught.value)
    assert server.calls == []


@pytest.mark.parametrize(
    ("platform", "missing", "line"),
    [
        ("bedrock", "boto3", "pip install 'anthropic[aiohttp,bedrock]>=0.87,<3'"),
        ("vertex", "google.auth", "pip install 'anthropic[aiohttp,vertex]>=0.87,<3'"),
    ],
)
def test_a_missing_extra_is_reported_with_the_line_that_installs_it(platform: str, missing: str, line: str) -> None:
    code = (
        f"import sys; sys.modules[{missing!r}] = None\n"
        "from delegate.types.errors import ConfigError\n"
        "from delegate.models.providers import Endpoint, connect\n"
        f"try: connect(Endpoint('anthropic', None, 'none', platform={platform!r}, region='r', project='p'))\n"
        "except ConfigError as error: print(error)"
    )
    done = subprocess.run([*warm.python(), "-c", code], capture_output=True, text=True, timeout=60, check=True)

    assert f"anthropic models on {platform} need {missing}" in done.stdout
    assert line in done.stdout
