"""A key is only sent to its own endpoint, and an SDK is only loaded when it is used."""

import subprocess
import sys
from importlib.metadata import version

import pytest

from delegate.models.providers import Endpoint
from delegate.types.errors import ConfigError, ProviderError
from delegate.types.ports import ChatRequest, Message
from tests.models.providers.conftest import KEY, Opener, Wire
from tests.support.model_server import Fault, ModelServer, Reply

ASK = ChatRequest("test-model", "", [Message("user", "say hello")], max_output_tokens=99)


def _is_old(protocol: str) -> bool:
    """Whether this version of the SDK doesn't read headers from the environment yet."""
    return int(version(protocol).split(".")[0]) < {"openai": 3, "anthropic": 2}[protocol]


# Credentials and settings for other endpoints.
AMBIENT = {
    "OPENAI_API_KEY": "ambient-openai",
    "OPENAI_ADMIN_KEY": "ambient-admin",
    "OPENAI_ORG_ID": "ambient-org",
    "OPENAI_PROJECT_ID": "ambient-project",
    "ANTHROPIC_API_KEY": "ambient-anthropic",
    "ANTHROPIC_AUTH_TOKEN": "ambient-token",
    "GEMINI_API_KEY": "ambient-gemini",
    "GOOGLE_API_KEY": "ambient-google",
    "GOOGLE_GENAI_USE_VERTEXAI": "true",
    "GOOGLE_CLOUD_PROJECT": "ambient-project",
    # An address that must not be called:
    "OPENAI_BASE_URL": "http://127.0.0.1:9/ambient",
    "ANTHROPIC_BASE_URL": "http://127.0.0.1:9/ambient",
    "GOOGLE_GEMINI_BASE_URL": "http://127.0.0.1:9/ambient",
    "OPENAI_CUSTOM_HEADERS": "Authorization: Bearer ambient-custom\nX-Team: ambient-team",
    "ANTHROPIC_CUSTOM_HEADERS": "authorization: Bearer ambient-custom\nX-Team: ambient-team",
}


@pytest.mark.parametrize("key", [KEY, ""])
async def test_nothing_of_the_environments_goes_to_another_endpoint(
    wire: Wire, opened: Opener, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    for name, value in AMBIENT.items():
        monkeypatch.setenv(name, value)
    with ModelServer([Reply("hello")]) as server:
        await opened(wire, server, key=key).complete(ASK)

    [call] = server.calls
    assert "ambient" not in call.head.decode()
    assert "publishers" not in call.path  # the path of Google's other platform
    assert (KEY in call.head.decode()) == bool(key)


async def test_headers_of_the_environment_go_to_the_endpoint_that_it_names(
    opened: Opener, wire: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix = wire.protocol.upper()
    with ModelServer([Reply("hello")]) as server:
        monkeypatch.setenv(f"{prefix}_BASE_URL", wire.url(server) + "/")
        monkeypatch.setenv(f"{prefix}_CUSTOM_HEADERS", "X-Team: ours")
        await opened(wire, server).complete(ASK)

    knows_it = "x-team" in server.calls[0].headers
    assert knows_it or wire.protocol == "google" or _is_old(wire.protocol)


@pytest.mark.parametrize("status", [302, 307])
async def test_a_redirect_is_not_followed_so_that_the_key_stays(wire: Wire, opened: Opener, status: int) -> None:
    with ModelServer([Reply("you should not be here")]) as other:
        moved = Fault(status, headers={"location": f"{other.url}/v1/chat/completions"})
        with ModelServer([moved]) as server, pytest.raises(ProviderError) as caught:
            await opened(wire, server).complete(ASK)

    assert other.calls == []
    assert (caught.value.fault, caught.value.status) == ("bad_reply", status)
    assert other.url in str(caught.value)


async def test_two_endpoints_each_get_their_own_key(wire: Wire, opened: Opener) -> None:
    with ModelServer([Reply("a")]) as one, ModelServer([Reply("b")]) as two:
        await opened(wire, one, key="key-of-the-first").complete(ASK)
        await opened(wire, two, key="key-of-the-second").complete(ASK)

    assert "key-of-the-first" in one.calls[0].head.decode()
    assert "key-of-the-second" in two.calls[0].head.decode()
    assert "key-of-the-first" not in two.calls[0].head.decode()


def test_an_endpoints_text_does_not_show_its_key() -> None:
    endpoint = Endpoint("openai", None, KEY)

    assert KEY not in f"{endpoint} {endpoint!r}"


@pytest.mark.parametrize("url", ["localhost:11434", "ftp://host/v1", "http://", "https://host:port", "/v1", "http://["])
def test_an_invalid_base_url_is_refused_at_once(url: str) -> None:
    with pytest.raises(ConfigError, match="isn't a base URL"):
        Endpoint("openai", url, KEY)


@pytest.mark.parametrize(
    ("base_url", "api", "expected"),
    [
        (None, "auto", True),
        ("https://api.openai.com/v1/", "auto", True),
        ("https://eu.api.openai.com/v1", "auto", True),
        ("https://api.openai.com.evil.test/v1", "auto", False),
        ("http://127.0.0.1:11434/v1", "auto", False),
        ("https://proxy.test/v1", "responses", True),
        (None, "chat", False),
    ],
)
def test_responses_is_used_at_openai_and_where_it_is_configured(base_url: str | None, api: str, expected: bool) -> None:
    assert Endpoint("openai", base_url, KEY, api).speaks_responses is expected  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("", "/v1beta/models/test-model:streamGenerateContent?alt=sse"),
        ("/", "/v1beta/models/test-model:streamGenerateContent?alt=sse"),
        ("/v1", "/v1/models/test-model:streamGenerateContent?alt=sse"),
        ("/v1alpha/", "/v1alpha/models/test-model:streamGenerateContent?alt=sse"),
        ("/gateway/v1beta", "/gateway/v1beta/models/test-model:streamGenerateContent?alt=sse"),
        ("/gateway", "/gateway/v1beta/models/test-model:streamGenerateContent?alt=sse"),
    ],
)
async def test_a_google_base_url_may_end_in_a_version(opened: Opener, suffix: str, path: str) -> None:
    with ModelServer([Reply("hello")]) as server:
        await opened(Wire("generate", "google"), server.url + suffix).complete(ASK)

    assert server.calls[0].path == path


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_providers_loads_no_sdk() -> None:
    loaded = run(
        "import sys, delegate.models.providers, delegate.models.providers.scripted\n"
        "print([name for name in ('openai', 'anthropic', 'google.genai', 'aiohttp', 'httpx', 'httpx2')"
        " if name in sys.modules])"
    )

    assert loaded == "[]"


def test_a_missing_sdk_is_reported_with_the_line_that_installs_it() -> None:
    openai, google = "pip install 'openai[aiohttp]>=2.24,<4'", "pip install 'google-genai[aiohttp]>=2,<4'"
    cases = [
        ("openai", "openai", "openai", openai),
        ("google", "google.genai", "google.genai", google),
        ("openai", "aiohttp", "aiohttp", openai),
    ]
    if _is_old("openai"):  # 3.x brings its own
        cases.append(("openai", "httpx_aiohttp", "the SDK's aiohttp extra", openai))
    said = run(
        "import os, sys\n"
        "from delegate.types.errors import ConfigError\n"
        "from delegate.models.providers import Endpoint, connect\n"
        "os.environ['HTTP_PROXY'] = 'http://127.0.0.1:9'\n"  # which only httpx_aiohttp knows
        f"for protocol, missing in {[case[:2] for case in cases]}:\n"
        "    if os.fork():\n"
        "        os.wait()\n"
        "        continue\n"
        "    sys.modules[missing] = None\n"
        "    try: connect(Endpoint(protocol, None, 'key'))\n"
        "    except ConfigError as error: print(' '.join(str(error).split()))\n"
        "    sys.exit()\n"
    ).splitlines()

    assert len(said) == len(cases)
    for told, (_, _, named, line) in zip(said, cases, strict=True):
        assert line in told
        assert named in told
