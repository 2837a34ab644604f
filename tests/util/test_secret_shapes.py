"""Secrets of every shape that is held against the redactor are found, and honest text stays as it is."""

import json
import re
import sysconfig
import time
import tomllib
from collections.abc import Iterator
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from delegate._util.redaction import MARK, Redactor
from delegate._util.secret_names import is_secret_name
from delegate.sandbox.processes.environment import command_environment
from tests.support.samples import sampled
from tests.util import secret_shapes
from tests.util.secret_shapes import OWN

ROOT = Path(__file__).resolve().parents[2]
SHAPES = secret_shapes.every()


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(OWN)


def test_a_secret_of_any_shape_is_redacted_as_text_and_in_json_and_what_is_around_stays(redactor: Redactor) -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 300
    around = "the ✓ first line\n\tand the\u200d second, with sk-no-key and https://host.example:80/@x\n"
    for shape in SHAPES:
        assert shape.secret in shape.text
        assert shape.secret not in redactor.text(shape.text), shape.name
        redacted = redactor.text(around + shape.text.replace("\u200b", "") + "\n" + around)
        assert redacted.startswith(around), shape.name
        assert redacted.endswith(around), shape.name
        assert MARK in redacted, shape.name
        in_json = redactor.json(json.dumps({"it": [shape.text]}, ensure_ascii=False))
        assert shape.secret not in json.loads(in_json)["it"][0], shape.name


@pytest.mark.parametrize("encoding", secret_shapes.encodings("x"))
def test_a_secret_is_redacted_however_it_is_encoded(redactor: Redactor, encoding: str) -> None:
    for kind in secret_shapes.ENCODED:
        assert_no_part_is_left(redactor, kind, encoding)


def assert_no_part_is_left(redactor: Redactor, kind: str, encoding: str) -> None:
    _, secret = secret_shapes.ENCODED[kind]
    encoded, own = secret_shapes.encoded(kind, encoding)
    redacted = redactor.text(f"the first\ndata {encoded} end\nthe last")
    assert redacted.startswith("the first\ndata ")
    assert redacted.endswith("end\nthe last")
    assert MARK in redacted
    window = 8 * len(own) // len(secret)  # what 8 characters of the secret take
    assert [part for n in range(len(own) - window + 1) if (part := own[n : n + window]) in redacted] == []


@pytest.mark.parametrize("broken", ["\n", "\r\n    ", " \u3000\n\u2003", "\\\n", "\\n", "\\r\\n  ", "\u200b", "\u00ad"])
def test_an_own_value_is_found_across_breaks_and_their_surroundings_stay(redactor: Redactor, broken: str) -> None:
    secret = OWN["SECRET_KEY_BASE"]
    text = "  before\n" + secret[:9] + broken + secret[9:] + "\n  after"
    assert redactor.text(text) == f"  before\n{MARK}\n  after"


def test_a_value_after_a_backslash_is_found_although_json_would_break_there() -> None:
    assert Redactor({"API_KEY": "nabcdef-12"}).text("C:\\nabcdef-12 x") == f"C:\\{MARK} x"


def test_a_value_of_several_lines_is_found_indented_and_in_json() -> None:
    secret = "first-line-1\nsecond-line-2\nthird"
    redactor = Redactor({"DEPLOY_KEY": secret})
    assert redactor.text("it is\n    " + secret.replace("\n", "\n    ") + " end") == f"it is\n    {MARK} end"
    assert json.loads(redactor.json(json.dumps({"it": secret}))) == {"it": MARK}


@pytest.mark.parametrize(
    "text",
    [
        "https://user:password@host.example/db, https://user:${PASSWORD}@host.example, https://{user}:{password}@host",
        "https://<user>:<pass>@host.example and https://user:****@host.example and ssh://git@host.example:22/x",
        "Basic understanding of Bearer tokens; Authorization: Basic <credentials>; the Bearer scheme",
        "aws_secret_access_key = os.environ['KEY'], SECRET_ACCESS_KEY=${SECRET}, SecretAccessKey: String",
        "a.very.long_attribute_name_of_some_module.and_another_attribute_name.with_more_of_it()",
        "npm_config_registry and hf_hub_download_a_file_from_the_hub_and_more, glc_with_a_name, r8_, ntn_",
        "1234567890:AAAA is no token, nor AC0123, nor SKU-0123456789abcdef0123456789abcdef",
        "family \U0001f468\u200d\U0001f469\u200d\U0001f467 and soft\u00adhyphens stay",
        "backward\\nnext, C:\\new\\readme.md\\ \n   indented \\\n continued",
    ],
)
def test_text_that_only_resembles_a_secret_stays(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "password: required, token: 12, api_key: None, secret = true",
        'api_key = os.environ["X_API_KEY"]; password = config.db2.password, auth_token=${TOKEN_1}',
        "private_key: PKCS7PrivateKeyTypes, api_key: str | None = None, client_secret = base64.b64decode(encoded_1)",
        "export DB_PASSWORD=$(pass show db1) PGPASSWORD=${PG_PASSWORD_2} X_API_KEY=<your-api-key-1>",
        "secret: db-credentials-v2, api-key: my-service-key-1, token: gpt-4o-mini-2024-07-18",
        "key: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08, sort_key=0",
        "cache_key: v1-npm-9f86d081884c7d65, idempotency_key: 3f2504e0-4f89-11d3-9a0c-0305e82c3301",
        'public_key = "AAAAB3NzaC1yc2EAAAADAQABAAABgQC7x9k3fM2pQ8vL5nR1tY6w", pageToken: "CAUQAA3dE5fG7hJ9kL1mN"',
        "max_tokens: 128000, completion_tokens=1234567890, token_count: 12345678, tokenizer: cl100k_base",
        "encryptionKey: arn:aws:kms:us-west-2:111122223333:key/a1b2c3d4-5678-90ab-cdef-111122223333",
        "PASSWORD_FILE=/run/secrets/db_password_1, secret_key_path: /etc/app/keys/signing-2026.pem",
        "AWS::ApiGateway::ApiKey: 48205d4ffd7feba3, fatal: Authentication failed for 'https://host.example/x-1234567.git/'",
        "dGhlIHF1aWNrIGJyb3duIGZveCBqdW1wcyBvdmVyIHRoZSBsYXp5IGRvZw==",
    ],
)
def test_what_is_assigned_to_the_name_of_a_secret_and_is_none_stays(redactor: Redactor, text: str) -> None:
    assert redactor.text(text) == text
    assert redactor.value({"text": text}) == {"text": text}


def test_a_field_named_like_a_secret_is_redacted_in_a_value_and_its_neighbors_stay(redactor: Redactor) -> None:
    secret = secret_shapes.chars(32)
    value = {"api_key": secret, "key": "9f86d081884c7d65", "env": [{"name": "DB_PASSWORD", "value": secret}], "n": 1}
    hidden = {"api_key": MARK, "key": "9f86d081884c7d65", "env": [{"name": "DB_PASSWORD", "value": MARK}], "n": 1}
    assert redactor.value(value) == hidden
    assert json.loads(redactor.json(json.dumps(value))) == hidden


@pytest.mark.slow
def test_the_standard_library_has_no_secrets(redactor: Redactor) -> None:
    folder = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "test", "tests", "idle_test"}
    files = [file for file in folder.rglob("*") if file.suffix in {".py", ".txt"} and not left_out & {*file.parts}]
    texts = {file: file.read_text(encoding="utf-8", errors="replace") for file in files}
    assert sum(map(len, texts.values())) > 5_000_000
    assert [file for file, text in texts.items() if redactor.text(text) != text] == []


def test_honest_text_stays_to_the_last_character(redactor: Redactor) -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("delegate/**/*.py"), *ROOT.glob("judges/*")]
    pages += [*ROOT.glob("tests/data/**/*.json*"), *ROOT.glob("examples/**/*.py"), *ROOT.glob("scripts/**/*.py")]
    texts = {page: page.read_text(encoding="utf-8") for page in pages if page.is_file()}
    assert sum(map(len, texts.values())) > 1_000_000
    assert [page for page, text in texts.items() if redactor.text(text) != text] == []


SENTENCES = (
    "El informe describe tres regiones; la contraseña se cambia cada 90 días.",
    "Der Schlüssel liegt unter der Fußmatte, das Kennwort vergibt die IT-Abteilung 2026 neu.",
    "Le jeton d'accès expire après 3600 secondes, voir l'annexe n° 12.",
    "密码必须至少包含8个字符。令牌：见第3章。",
    "パスワードは90日ごとに変更してください。トークン：v2",
    "Пароль меняют раз в 90 дней, ключ: см. приложение 4.",
    "كلمة المرور: ثمانية أحرف على الأقل، الرمز 2026",
    "पासवर्ड: कम से कम 8 अक्षर, कुंजी संख्या 12",
)


def test_logs_tables_and_natural_languages_stay(redactor: Redactor) -> None:
    random = Random(7)

    def digest(count: int) -> str:
        return f"{random.getrandbits(4 * count):0{count}x}"

    def lines() -> Iterator[str]:
        for n in range(1_000):
            id = UUID(int=random.getrandbits(128))
            at = f"2026-01-{n % 28 + 1:02}T10:{n % 60:02}:07.123Z"
            yield f"{at} INFO [{id}] GET /v1/items/{n}?page={n} 200 took={n / 7:.3f}s"
            yield f'{n},{id},{digest(40)},"{random.choice(SENTENCES)}",{n * 1.5:.2f},sha256:{digest(64)}'
            yield f'{{"id": "{id}", "etag": "{digest(32)}", "next_page_token": "{digest(24)}", "tokens": {n * 977}}}'
            yield f"commit {digest(40)} key=v1-cache-{digest(16)} build {n}\\n\\tnext {random.choice(SENTENCES)}"

    text = "\n".join(lines())
    assert len(text) > 500_000
    assert redactor.text(text) == text


# ------------------------------------------------------------------------------------------------------ whose values


@pytest.mark.parametrize(
    "name",
    ["OPENAI_API_KEY", "SECRET_KEY_BASE", "PGPASSWORD", "MYSQL_PWD", "GITHUB_PAT", "NPM_AUTH", "OPENAI_API_KEY_BACKUP",
     "TOKEN_2", "openaiApiKey", "db-password", "AWS_SECRET_ACCESS_KEY_PROD", "SSH_PASSPHRASE", "LC_TOKEN"],
)  # fmt: skip
def test_the_name_of_a_secret_is_one_everywhere(name: str) -> None:
    assert is_secret_name(name)
    assert Redactor({name: "a-value-of-mine-1"}).text("a-value-of-mine-1") == MARK
    assert command_environment({f"LC_{name}": "a-value-of-mine-1"}).keys() <= {"PATH", "LANG"}


@pytest.mark.parametrize(
    "name",
    ["PWD", "OLDPWD", "PATH", "GIT_AUTHOR_NAME", "SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM", "KEYBOARD",
     "KEY_VAULT_NAME", "AWS_ACCESS_KEY_ID", "PASSWORD_FILE", "MAX_TOKEN_LIMIT", "AUTHOR", "COMPASS", "LC_ALL"],
)  # fmt: skip
def test_the_name_of_something_else_is_not_a_secrets(name: str) -> None:
    assert not is_secret_name(name)
    assert Redactor({name: "a-value-of-mine-1"}).text("a-value-of-mine-1") == "a-value-of-mine-1"


@pytest.mark.parametrize(
    "value",
    ["correcthorsebattery", "hunterTwo", "/aB3dE5fG7hJ9kL1mN3pQ5rS7", "12345678", "https://x.test/aB3dE5fG7hJ9kL1mN3"],
)
def test_a_secret_value_may_have_any_shape(value: str) -> None:
    assert Redactor({"MY_SECRET": value}).text(f"({value})") == f"({MARK})"


def test_words_paths_and_addresses_are_not_secret_values() -> None:
    for value in ("password", "POSTGRES", "Required", "short-1", "/run/secrets/db_password.txt", "~/.ssh/id_ed25519",
                  "https://login.test/v2"):  # fmt: skip
        assert Redactor({"MY_SECRET": value}).text(f"({value})") == f"({value})"


# ------------------------------------------------------------------------------------------------------------- speed


def literals() -> list[str]:
    data = tomllib.loads((ROOT / "delegate" / "_util" / "secret_formats.toml").read_text(encoding="utf-8"))
    return [
        *(one for entry in data["formats"] for one in entry["prefixes"]),
        *(one["literal"] for one in data["shapes"]),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("literal", sampled(literals(), 20))
def test_no_repeated_beginning_of_a_secret_makes_the_search_slow(redactor: Redactor, literal: str) -> None:
    for rest in ("", "a", "A1", "a" * 200, ":", "\n", " ", "\\n", "."):
        text = f"{literal}{rest}"
        text *= 40_000 // len(text)
        began = time.process_time()
        redactor.text(text)
        assert time.process_time() - began < 0.5, repr(rest)  # 0.005 s; a search that is not linear takes seconds


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["\n", "\\n", "\\", " \n", "\u200b", "\u200b\n", "://a:b", "://:@", "d\n", "=\n"])
def test_no_breaks_or_hidden_characters_make_the_search_slow(redactor: Redactor, unit: str) -> None:
    text = unit * (300_000 // len(unit)) + OWN["SECRET_KEY_BASE"]
    began = time.process_time()
    assert OWN["SECRET_KEY_BASE"] not in redactor.text(text)
    assert time.process_time() - began < 2


def test_the_format_file_says_where_its_patterns_come_from() -> None:
    head = (
        (ROOT / "delegate" / "_util" / "secret_formats.toml").read_text(encoding="utf-8").partition("[[formats]]  #")[0]
    )
    assert re.search(
        r"gitleaks 8\.30\.0\n# .*, Copyright \(c\) 2019 Zachary Rice, licensed under the MIT License", head
    )
    assert re.search(r"detect-secrets 1\.5\.0, Copyright Yelp, Inc\.,\n# licensed under the Apache License 2\.0", head)
