"""Secrets of many shapes, made up at run time, so that no file contains what looks like one.

`format` and `header` shapes are recognized by how they look; `own` ones only because the environment holds their value.
"""

import base64
import json
import random
import string
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote, quote_plus

WORD = string.ascii_letters + string.digits
_RANDOM = random.Random(20)


class Shape(NamedTuple):
    name: str
    text: str
    secret: str
    """What must not be in the redacted text."""


def chars(count: int, alphabet: str = WORD) -> str:
    """Random characters with at least one digit, upper and lower letter each, as far as the alphabet has them."""
    while True:
        made = "".join(_RANDOM.choices(alphabet, k=count))
        wanted = [
            one for one in (string.digits, string.ascii_uppercase, string.ascii_lowercase) if {*one} & {*alphabet}
        ]
        if count < 8 or all({*made} & {*one} for one in wanted):
            return made


def hexadecimal(count: int) -> str:
    return chars(count, "0123456789abcdef")


PREFIXED = {
    "aws access key": ("AKIA", chars(16, string.ascii_uppercase + string.digits)),
    "aws bearer token": ("ABIA", chars(16, string.ascii_uppercase + string.digits)),
    "aws context credential": ("ACCA", chars(16, string.ascii_uppercase + string.digits)),
    "artifactory": ("AKC", "p8" + chars(68)),
    "github": ("ghp_", chars(36)),
    "gitlab": ("glpat-", chars(20)),
    "gitlab deploy": ("gldt-", chars(20)),
    "gitlab runner": ("glrt-", chars(20)),
    "gitlab ci": ("glcbt-", "64_" + chars(20)),
    "gitlab trigger": ("glptt-", hexadecimal(40)),
    "gitlab registration": ("GR1348941", chars(20)),
    "npm": ("npm_", chars(36)),
    "openai": ("sk-proj-", chars(20) + "T3BlbkFJ" + chars(20)),
    "anthropic": ("sk-ant-api03-", chars(90)),
    "google": ("AIza", chars(35)),
    "google oauth client": ("GOCSPX-", chars(28)),
    "groq": ("gsk_", chars(52)),
    "xai": ("xai-", chars(80)),
    "perplexity": ("pplx-", chars(48)),
    "nvidia": ("nvapi-", chars(64)),
    "hugging face": ("hf_", chars(34)),
    "replicate": ("r8_", chars(37)),
    "pypi": ("pypi-", "AgEIcHlwaS5vcmc" + chars(80)),
    "sendgrid": ("SG.", chars(22) + "." + chars(43)),
    "slack": ("xoxb-", "123456789012-" + chars(24)),
    "slack app": ("xapp-", "1-A012345-" + chars(40)),
    "square": ("sq0csp-", chars(43)),
    "stripe": ("sk_live_", chars(24)),
    "stripe test": ("sk_test_", chars(24)),
    "stripe webhook": ("whsec_", chars(32)),
    "telegram": ("123456789:AA", chars(33)),
    "twilio": ("SK", hexadecimal(32)),
    "docker": ("dckr_pat_", chars(27)),
    "digitalocean": ("dop_v1_", hexadecimal(64)),
    "shopify": ("shpat_", hexadecimal(32)),
    "linear": ("lin_api_", chars(40)),
    "notion": ("ntn_", chars(46)),
    "grafana": ("glsa_", chars(32) + "_" + hexadecimal(8)),
    "planetscale": ("pscale_tkn_", chars(43)),
    "vault": ("hvs.", chars(90)),
    "postman": ("PMAK-", hexadecimal(24) + "-" + hexadecimal(34)),
    "new relic": ("NRAK-", chars(27, string.ascii_uppercase + string.digits)),
    "tailscale": ("tskey-", "auth-" + chars(12) + "-" + chars(32)),
    "brevo": ("xkeysib-", hexadecimal(64) + "-" + chars(16)),
    "age": ("AGE-SECRET-KEY-", "1" + chars(58, string.ascii_uppercase + string.digits)),
}


CAPITALS = string.ascii_uppercase + string.digits
SMALL = string.ascii_lowercase + string.digits
SERVICES = {
    "together": ("tgp_v1_", chars(43)),
    "fireworks": ("fw_", chars(24)),
    "cerebras": ("csk-", chars(48, SMALL)),
    "langsmith": ("lsv2_pt_", f"{hexadecimal(32)}_{hexadecimal(10)}"),
    "langsmith service": ("lsv2_sk_", f"{hexadecimal(32)}_{hexadecimal(10)}"),
    "tavily": ("tvly-", chars(32)),
    "tavily development": ("tvly-dev-", chars(32)),
    "pinecone": ("pcsk_", f"{chars(6)}_{chars(63)}"),
    "voyage": ("pa-", chars(43)),
    "jina": ("jina_", chars(60)),
    "firecrawl": ("fc-", hexadecimal(32)),
    "elevenlabs": ("sk_", hexadecimal(48)),
    "runpod": ("rpa_", chars(42, CAPITALS)),
    "databricks": ("dapi", hexadecimal(32)),
    "figma": ("figd_", chars(40)),
    "doppler": ("dp.pt.", chars(43)),
    "doppler service": ("dp.st.prd.", chars(43)),
    "supabase": ("sb_secret_", chars(31)),
    "vercel": ("vercel_blob_rw_", chars(40)),
    "netlify": ("nfp_", chars(36)),
    "render": ("rnd_", chars(32)),
    "neon": ("npg_", chars(12)),
    "resend": ("re_", f"{chars(8)}_{chars(24)}"),
    "circleci": ("CCIPAT_", f"{chars(22)}_{hexadecimal(40)}"),
    "buildkite": ("bkua_", hexadecimal(40)),
    "bitbucket": ("ATBB", chars(32)),
    "atlassian": ("ATATT3", chars(186)),
    "1password": ("A3-", "-".join(chars(n, CAPITALS) for n in (6, 6, 5, 5, 5, 5))),
    "1password service": ("ops_eyJ", chars(300)),
    "adobe": ("p8e-", chars(32, SMALL)),
    "airtable": (f"pat{chars(14)}.", hexadecimal(64)),
    "alibaba": ("LTAI", chars(20)),
    "bedrock": ("ABSK", chars(120)),
    "bedrock, short": ("bedrock-api-key-", chars(100)),
    "entra": (f"{chars(3)}8Q~", chars(34)),
    "clickhouse": ("4b1d", chars(38)),
    "clojars": ("CLOJARS_", hexadecimal(60)),
    "cloudflare origin": ("v1.0-", f"{hexadecimal(24)}-{hexadecimal(146)}"),
    "duffel": ("duffel_live_", chars(43)),
    "dynatrace": ("dt0c01.", f"{chars(24, CAPITALS)}.{chars(64, CAPITALS)}"),
    "easypost": ("EZAK", chars(54)),
    "facebook page": ("EAAM", chars(120)),
    "flutterwave": ("FLWSECK_TEST-", f"{hexadecimal(32)}-X"),
    "fly": ("fo1_", chars(43)),
    "frame.io": ("fio-u-", chars(64)),
    "gitlab feature flags": ("glffct-", chars(20)),
    "gitlab session": ("_gitlab_session=", hexadecimal(32)),
    "grafana, earlier": ("eyJrIjoi", chars(80)),
    "harness": ("pat.", f"{chars(22)}.{chars(24)}.{chars(20)}"),
    "terraform": (f"{chars(14)}.atlasv1.", chars(64)),
    "hugging face organization": ("api_org_", chars(34, string.ascii_letters)),
    "infracost": ("ico-", chars(32)),
    "mailgun": ("key-", hexadecimal(32)),
    "mapbox": ("sk.eyJ", f"{chars(60)}.{chars(22)}"),
    "maxmind": ("", f"{chars(6)}_{chars(29)}_mmk"),
    "new relic insert": ("NRII-", chars(32)),
    "octopus": ("API-", chars(26, CAPITALS)),
    "openshift": ("sha256~", chars(43)),
    "plaid": ("access-production-", "-".join(map(hexadecimal, (8, 4, 4, 4, 12)))),
    "planetscale oauth": ("pscale_oauth_", chars(43)),
    "planetscale oauth, with a point early": ("pscale_oauth_", f"ab.{'a1B2' * 10}"),
    "typeform, with a point early": ("tfp_", f"ab.{'a1B2' * 12}"),
    "dynatrace, with a short id": ("dt0c01.", f"{'A1B2' * 2}.{'A1B2' * 16}"),
    "prefect": ("pnu_", chars(36)),
    "pulumi": ("pul-", hexadecimal(40)),
    "readme": ("rdme_", chars(70, SMALL)),
    "scalingo": ("tk-us-", chars(48)),
    "settlemint": ("sm_pat_", chars(16)),
    "shippo": ("shippo_live_", hexadecimal(40)),
    "sonar": ("squ_", hexadecimal(40)),
    "sourcegraph": ("sgp_", hexadecimal(40)),
    "square production": ("EAAAE", chars(59)),
    "typeform": ("tfp_", chars(59)),
    "yandex": ("AQVN", chars(36)),
    "nuget": ("oy2", chars(43, SMALL)),
    "google refresh": ("1//0", chars(90)),
    "behind an underscore": ("k_sk-proj-", chars(40)),
    "github behind a letter": ("kghp_", chars(36)),
    "github behind a name": ("k_ghp_", chars(36)),
}


def services() -> Iterator[Shape]:
    """Keys of more services, in the middle of a sentence."""
    for name, (prefix, rest) in SERVICES.items():
        yield Shape(name, f"the key is {prefix}{rest} and more", rest)
    for name, text in {
        "service bus": "Endpoint=sb://x/;SharedAccessKeyName=a;SharedAccessKey={};EntityPath=q",
        "shared access signature": "https://x.blob.example/c?sv=2024&sig={}&se=2026",
        "teams webhook": "https://x.webhook.office.com/webhookb2/{}/IncomingWebhook",
        "slack workflow": "https://hooks.slack.com/triggers/T0123456789/B0123456789/{}",
        "token header": "Authorization: Token {}",
        "session cookie": "Cookie: sessionid={}; theme=dark",
        "curl": "curl -s -u admin:{} https://x.example",
    }.items():
        yield Shape(name, text.format(secret := chars(64)), secret)


ASSIGNED = {
    "shell": "X_API_KEY={}",
    "shell export": "export X_API_KEY={}\n",
    "after an escape": "one\\r\\nauth_token: {}\\n",
    "typed, after an escape": "one\\napi_key: str = '{}'",
    "shell, quoted": "export DB_PASSWORD='{}'",
    "dotenv": "A=1\nMISTRAL_API_KEY={}\nB=2",
    "docker": "docker run -e X_AUTH_TOKEN={} image",
    "powershell": '$env:X_API_KEY = "{}"',
    "fish": "set -x X_API_KEY={}",
    "json": '{{"client_secret": "{}", "id": 1}}',
    "json, tight": '{{"api_key":"{}"}}',
    "json in json": '{{\\"access_token\\": \\"{}\\"}}',
    "json in json in json": '{{\\\\\\"password\\\\\\": \\\\\\"{}\\\\\\"}}',
    "yaml": "db:\n  password: {}\n  port: 1",
    "yaml, quoted": 'api-key: "{}"',
    "yaml of a pod": "- name: X_API_KEY\n  value: {}\n",
    "toml": 'auth_token = "{}"',
    "ini": "[db]\npassword = {}\n",
    "properties": "spring.datasource.password={}\n",
    "header": "x-api-key: {}",
    "header of azure": "api-key: {}\r\nHost: x",
    "header of anthropic": "> X-Api-Key: {}",
    "header in python": "headers = {{'X-Api-Key': '{}'}}",
    "header as a pair": "headers.add(('X-Auth-Token', '{}'))",
    "python": 'api_key = "{}"',
    "python, typed": 'api_key: str = "{}"',
    "python, bytes": "secret_key = b'{}'",
    "python call": "Client(api_key='{}', retries=2)",
    "python environment": 'os.environ["X_API_KEY"] = "{}"',
    "setenv": 'os.Setenv("X_API_KEY", "{}")',
    "javascript": 'const apiKey = "{}";',
    "typescript": "const clientSecret: string = '{}'",
    "go": 'accessToken := "{}"',
    "ruby": "'api_key' => '{}',",
    "java": 'String dbPassword = "{}";',
    "c macro in words": "the password={} works",
    "xml": "<apiKey>{}</apiKey>",
    "xml attribute": '<add key="ApiKey" value="{}"/>',
    "url query": "https://x.example/v1?api_key={}&page=2",
    "url access token": "GET /v1?access_token={} HTTP/1.1",
    "flag": "tool --api-key {} --verbose",
    "flag with =": "tool --password={} --verbose",
    "connection string": "Server=x;User Id=sa;Password={};Encrypt=True",
    "log line": "INFO request api_key={} status=200",
    "sql": "ALTER USER x WITH PASSWORD = '{}'",
    "netrc": "_authToken={}",
}


def assigned() -> Iterator[Shape]:
    """Secrets without a format, next to the name of one."""
    for name, text in ASSIGNED.items():
        for kind, secret in (("random", chars(32)), ("hexadecimal", hexadecimal(32)), ("short", f"x{chars(11)}")):
            yield Shape(f"{kind} in {name}", text.format(secret), secret)
    uuid = "-".join(map(hexadecimal, (8, 4, 4, 4, 12)))
    yield Shape("uuid as a key", f"HEROKU_API_KEY={uuid}", uuid)


def encodings(secret: str) -> Mapping[str, str]:
    """What a program may write instead of a secret."""
    data, half = secret.encode(), len(secret) // 2
    b64 = base64.b64encode(data).decode()
    return {
        "base64": b64,
        "base64 without padding": b64.rstrip("="),
        "base64 for urls": base64.urlsafe_b64encode(data).decode(),
        "base64 with a newline": base64.b64encode(data + b"\n").decode(),
        **{f"base64 after {n}": base64.b64encode(b"key: x="[-n:] + data).decode() for n in range(1, 8)},
        "base64 with more after it": base64.b64encode(data + b"\nA=1\nmore\n").decode(),
        "base64 in a data url": f"data:text/plain;base64,{b64}",
        "base64 of a file": base64.b64encode(b"# settings\nA=1\nKEY=" + data + b"\nB=2\n" * 20).decode(),
        "base64 wrapped at 76": base64.encodebytes(b"line one\n" * 12 + data + b"\nmore" * 12).decode(),
        "base64 wrapped at 64": "\n".join(textwrap.wrap(base64.b64encode(b" " * 50 + data).decode(), 64)),
        "base64 wrapped with indent": "\n    ".join(textwrap.wrap(base64.b64encode(b" " * 50 + data).decode(), 60)),
        "base64 wrapped in json": "\\n".join(textwrap.wrap(base64.b64encode(b" " * 50 + data).decode(), 60)),
        "base64 of base64": base64.b64encode(b64.encode()).decode(),
        "base64 of hex": base64.b64encode(data.hex().encode()).decode(),
        "base64 of json": base64.b64encode(json.dumps({"k": secret}).encode()).decode(),
        "base64 in a url": quote(b64, safe=""),
        "base32": base64.b32encode(data).decode(),
        "base32 without padding": base64.b32encode(data).decode().rstrip("="),
        "base32, small": base64.b32encode(data).decode().lower(),
        "hex": data.hex(),
        "hex, capital": data.hex().upper(),
        "hex after 0x": "0x" + data.hex(),
        "hex with more": (b"key=" + data + b"\n").hex(),
        "hex after an odd digit": "a" + data.hex(),
        "hex of base64": b64.encode().hex(),
        "percent": "".join(f"%{byte:02x}" for byte in data),
        "percent, capital": "".join(f"%{byte:02X}" for byte in data),
        "percent, some": quote(secret, safe="").replace("-", "%2D").replace("_", "%5F"),
        "percent twice": "".join(f"%25{byte:02x}" for byte in data),
        "escapes of code": "".join(f"\\x{byte:02x}" for byte in data),
        "escapes of json": "".join(f"\\u{byte:04x}" for byte in data),
        "escapes of json in json": "".join(f"\\\\u{byte:04x}" for byte in data),
        "one escape of json": secret[:half] + f"\\u{data[half]:04x}" + secret[half + 1 :],
        "entities": "".join(f"&#{byte:03};" for byte in data),
        "entities, hex": "".join(f"&#x{byte:x};" for byte in data),
        "zero-width space": f"{secret[:half]}\u200b{secret[half:]}",
        "soft hyphens": "\u00ad".join(secret),
        "an escape of nothing": f"{secret[:half]}\\u200b{secret[half:]}",
        "an entity of nothing": f"{secret[:half]}&#8203;{secret[half:]}",
        "word joiner": f"{secret[:half]}\u2060{secret[half:]}",
    }


def formats() -> Iterator[Shape]:
    """Keys that vendors give a prefix, and other secrets that are known by their surroundings."""
    for name, (prefix, rest) in PREFIXED.items():
        yield Shape(name, f"the key is {prefix}{rest}, keep it", rest)
    aws, azure, web = chars(40, WORD + "+/"), chars(88, WORD + "+/"), chars(24)
    yield Shape("aws secret key", f'aws_secret_access_key = "{aws}"', aws)
    yield Shape("aws secret key in json", f'{{"SecretAccessKey": "{aws}"}}', aws)
    yield Shape("aws secret key in a shell", f"export AWS_SECRET_ACCESS_KEY={aws}\n", aws)
    yield Shape("azure storage", f"AccountName=a;AccountKey={azure};EndpointSuffix=x", azure)
    yield Shape("discord", f"bot M{chars(23)}.{chars(6)}.{(last := chars(27))} ok", last)
    yield Shape("mailchimp", f"key {(key := hexadecimal(32))}-us12.", key)
    yield Shape("npm registry", f"//registry.npmjs.org/:_authToken={(token := chars(36))}", token)
    yield Shape("slack webhook", f"https://hooks.slack.com/services/T{chars(9)}/B{chars(9)}/{web}", web)
    yield Shape("json web token", f"eyJ{chars(30)}.eyJ{chars(60)}.{(signature := chars(43))}", signature)
    dashes = "-" * 5
    for kind in ("RSA ", "OPENSSH ", ""):
        body = "\n".join(chars(64) for _ in range(6))
        begin, end = (f"{dashes}{word} {kind}PRIVATE KEY{dashes}" for word in ("BEGIN", "END"))
        yield Shape(f"{kind}private key", f"{begin}\n{body}\n{end}\n", body[:64])
    lines = "\n".join(chars(64) for _ in range(4))
    putty = f"PuTTY-User-Key-File-2: ssh-rsa\nPrivate-Lines: 4\n{lines}\nPrivate-MAC: {hexadecimal(40)}\n"
    yield Shape("putty key", putty, lines[:64])


def headers() -> Iterator[Shape]:
    """Passwords in addresses and headers."""
    password = chars(14)
    basic = base64.b64encode(f"admin:{password}".encode()).decode()
    for scheme in ("https", "postgresql", "redis", "mongodb+srv", "amqp"):
        yield Shape(f"{scheme} with a password", f"see {scheme}://admin:{password}@host.example:5432/db.", password)
    yield Shape("a password with an @", f"git clone https://me:p@{password}@host.example/x.git", password)
    yield Shape("a token without a user", f"https://:{password}@host.example/simple", password)
    yield Shape("basic header", f"Authorization: Basic {basic}", basic)
    yield Shape("basic header in json", f'{{"authorization": "Basic {basic}"}}', basic)
    yield Shape("bearer header", f"Authorization: Bearer {(token := chars(40))}", token)


OWN = {
    "DB_PASSWORD": "correcthorsebattery",
    "APP_SECRET": "/" + chars(39, WORD + "+/"),
    "SECRET_KEY_BASE": chars(64),
    "PGPASSWORD": "tr0ub4dor&3?",
    "OPENAI_API_KEY_BACKUP": "dummy-of-mine-1234",
    "NPM_AUTH": chars(20) + "==",
    "DATABASE_URL": f"postgresql://app:{(DATABASE := chars(18))}@db.example/app",
    "SIGNING_TOKENS": "äß-" + chars(20),
}
"""Variables of the operator, none with a format that is known."""


def own() -> Iterator[Shape]:
    """Values of the operator's own variables, as they are and encoded in the ways that programs print."""
    for name, value in OWN.items():
        secret = DATABASE if name == "DATABASE_URL" else value
        yield Shape(f"{name} as it is", f"it is {secret}!", secret)
    for name in ("SECRET_KEY_BASE", "PGPASSWORD", "OPENAI_API_KEY_BACKUP"):
        secret = OWN[name]
        data = secret.encode()
        for before in ("", "u:", "me:"):
            encoded = base64.b64encode(before.encode() + data + b":x").decode()
            yield Shape(f"{name} in base64 after {before!r}", f"data {encoded}", encoded[6:-6])
        yield Shape(f"{name} in base64 for urls", f"data {(one := base64.urlsafe_b64encode(data).decode())}", one[4:-4])
        yield Shape(f"{name} in hex", f"data {data.hex()} end", data.hex())
        yield Shape(f"{name} in capital hex", f"data {data.hex().upper()} end", data.hex().upper())
        yield Shape(f"{name} in a url", f"https://x.example/?k={(one := quote(secret, safe=''))}", one)
        yield Shape(f"{name} in a form", f"k={(one := quote_plus(secret))}", one)
        half = len(secret) // 2
        yield Shape(f"{name} across lines", f"it is {secret[:half]}\n    {secret[half:]}!", secret[half:])
        yield Shape(f"{name} across lines in json", f"it is {secret[:half]}\\n{secret[half:]}!", secret[half:])
        yield Shape(f"{name} with hidden characters", f"it is {secret[:half]}\u200b{secret[half:]}!", secret[half:])
        wrapped = "\n".join(textwrap.wrap(base64.b64encode(data * 3).decode(), 24))
        yield Shape(f"{name} in wrapped base64", f"data\n{wrapped}\n", wrapped[4:20])


def every() -> list[Shape]:
    return [*formats(), *services(), *headers(), *assigned(), *own()]


ENCODED = {
    "github": ("ghp_", chars(36)),
    "anthropic": ("sk-ant-api03-", chars(60)),
    "aws": ("AKIA", chars(16, CAPITALS)),
    "assigned": ("DB_PASSWORD=", chars(24)),
    "own": ("", OWN["SECRET_KEY_BASE"]),
}
"""Secrets to encode, in front of which stands what isn't secret."""


def encoded(kind: str, encoding: str) -> tuple[str, str]:
    """A secret as an encoding writes it, and the part of it that changes with the secret."""
    prefix, secret = ENCODED[kind]
    other = "".join(chr(ord(char) + (-1 if char in "9zZ" else 1)) for char in secret)
    text, changed = (encodings(prefix + one)[encoding] for one in (secret, other))
    differs = [n for n, (one, another) in enumerate(zip(text, changed, strict=True)) if one != another]
    return text, text[differs[0] : differs[-1] + 1]


class Plant(NamedTuple):
    """A text with secrets to plant where a text may come from."""

    text: str
    secrets: Sequence[str]
    """Parts of each that must not be seen at any exit."""


def plants() -> list[Plant]:
    """One text for each encoding, of all kinds of secrets in turn, with a share of all shapes."""
    names = [*encodings("x")]
    kinds = [*ENCODED] * len(names)
    found: list[Plant] = []
    shapes = every()
    for n, (encoding, kind) in enumerate(zip(names, kinds, strict=False)):
        text, own = encoded(kind, encoding)
        window = 8 * len(own) // len(ENCODED[kind][1])  # what 8 characters of the secret take
        middle = len(own) // 2
        parts = [own[:window], own[middle : middle + window], own[-window:]]
        held = shapes[n :: len(names)]
        whole = "\n".join([f"data {text} end", *(one.text for one in held)])
        found.append(Plant(whole, [*parts, *(one.secret[-16:] for one in held)]))
    return found
