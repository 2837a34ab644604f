"""Secrets of every shape that is held against the redactor are found, and honest text stays as it is."""

import json
import re
import time
import tomllib
from pathlib import Path

import pytest

from delegate._util.redaction import MARK, Redactor
from delegate._util.secret_names import is_secret_name
from delegate.sandbox.environment import command_environment
from tests.util import secret_shapes
from tests.util.secret_shapes import OWN, Shape

ROOT = Path(__file__).resolve().parents[2]
SHAPES = secret_shapes.every()


@pytest.fixture(scope="module")
def redactor() -> Redactor:
    return Redactor(OWN)


def test_the_held_set_is_large_and_its_names_differ() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES) >= 100


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_secret_of_any_shape_is_redacted_as_text_and_in_json(redactor: Redactor, shape: Shape) -> None:
    assert shape.secret in shape.text
    assert shape.secret not in redactor.text(shape.text)
    assert MARK in redactor.text(shape.text)
    in_json = redactor.json(json.dumps({"it": [shape.text]}, ensure_ascii=False))
    assert shape.secret not in json.loads(in_json)["it"][0]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_what_is_around_a_secret_stays(redactor: Redactor, shape: Shape) -> None:
    around = "the ✓ first line\n\tand the\u200d second, with sk-no-key and https://host.example:80/@x\n"
    redacted = redactor.text(around + shape.text.replace("\u200b", "") + "\n" + around)
    assert redacted.startswith(around)
    assert redacted.endswith(around)


@pytest.mark.parametrize(
    "broken", ["{}\n{}", "{}\r\n    {}", "{}\\\n{}", "{}\\n{}", "{}\\r\\n  {}", "{}\u200b{}", "{}\u00ad{}"]
)
def test_an_own_value_is_found_across_breaks_and_their_surroundings_stay(redactor: Redactor, broken: str) -> None:
    secret = OWN["SECRET_KEY_BASE"]
    text = "  before\n" + broken.format(secret[:9], secret[9:]) + "\n  after"
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


def test_honest_text_stays_to_the_last_character(redactor: Redactor) -> None:
    pages = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("delegate/**/*.py"), *ROOT.glob("judges/*")]
    pages += [*ROOT.glob("tests/data/**/*.json*"), *ROOT.glob("examples/**/*.py"), *ROOT.glob("scripts/**/*.py")]
    texts = {page: page.read_text(encoding="utf-8") for page in pages if page.is_file()}
    assert sum(map(len, texts.values())) > 1_000_000
    assert [page for page, text in texts.items() if redactor.text(text) != text] == []


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


@pytest.mark.parametrize(
    "value",
    [
        "password",
        "POSTGRES",
        "Required",
        "short-1",
        "/run/secrets/db_password.txt",
        "~/.ssh/id_ed25519",
        "https://login.test/v2",
    ],
)
def test_words_paths_and_addresses_are_not_secret_values(value: str) -> None:
    assert Redactor({"MY_SECRET": value}).text(f"({value})") == f"({value})"


# ------------------------------------------------------------------------------------------------------------- speed


def literals() -> list[str]:
    data = tomllib.loads((ROOT / "delegate" / "_util" / "secret_formats.toml").read_text(encoding="utf-8"))
    return [
        *(one for entry in data["formats"] for one in entry["prefixes"]),
        *(one["literal"] for one in data["shapes"]),
    ]


@pytest.mark.parametrize("literal", literals())
def test_no_repeated_beginning_of_a_secret_makes_the_search_slow(redactor: Redactor, literal: str) -> None:
    for rest in ("", "a", "A1", "a" * 200, ":", "\n", " ", "\\n", "."):
        text = f"{literal}{rest}"
        text *= 40_000 // len(text)
        began = time.process_time()
        redactor.text(text)
        assert time.process_time() - began < 0.5, repr(rest)  # 0.005 s; a search that is not linear takes seconds


@pytest.mark.parametrize("unit", ["\n", "\\n", "\\", " \n", "\u200b", "\u200b\n", "://a:b", "://:@", "d\n", "=\n"])
def test_no_breaks_or_hidden_characters_make_the_search_slow(redactor: Redactor, unit: str) -> None:
    text = unit * (300_000 // len(unit)) + OWN["SECRET_KEY_BASE"]
    began = time.process_time()
    assert OWN["SECRET_KEY_BASE"] not in redactor.text(text)
    assert time.process_time() - began < 2


def test_the_format_file_says_where_its_patterns_come_from() -> None:
    head = (ROOT / "delegate" / "_util" / "secret_formats.toml").read_text(encoding="utf-8").partition("[[")[0]
    assert re.search(r"detect-secrets 1\.5\.0, Copyright Yelp, Inc\.,\n# licensed under the Apache License 2\.0", head)
