"""Secrets of many shapes, made up at run time, so that no file contains what looks like one.

`format` and `header` shapes are recognized by how they look; `own` ones only because the environment holds their value.
"""

import base64
import random
import string
import textwrap
from collections.abc import Iterator
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
    return [*formats(), *headers(), *own()]
