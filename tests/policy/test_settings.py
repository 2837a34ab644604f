"""Settings come from arguments, environment, delegate.toml and defaults, in this order. Mistakes are named."""

from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from delegate import Delegator
from delegate.hosts import host_tool
from delegate.policy.settings import ONLY_IN_FILES, Settings, SettingsOptions, load_settings, override, variable
from delegate.types.errors import ConfigError
from tests.support.operator import MODEL, own_settings


def test_arguments_outrank_the_environment_which_outranks_the_file() -> None:
    Path("delegate.toml").write_text('tier = "deep"\nmax_steps = 5\nmodel = "a"\n')
    settings = load_settings({"DELEGATE_MAX_STEPS": "6", "DELEGATE_MODEL": "b"}, model="c")
    assert (settings.tier, settings.max_steps, settings.model) == ("deep", 6, "c")


def test_a_list_in_the_environment_is_separated_by_commas() -> None:
    assert load_settings({"DELEGATE_FETCH_HOSTS": "a.test, b.test:81"}).fetch_hosts == ("a.test", "b.test:81")


ENDPOINT = '[[endpoints]]\nname = "x"\nbase_url = "http://x"\n[[endpoints.models]]\nid = "m"\ntier = "fast"\n'


RULE = '[[policy.rules]]\nreason = "r"\n'


@pytest.mark.parametrize(
    ("toml", "environ", "words"),
    [
        ("max_stps = 5", {}, ["max_stps", "delegate.toml", "max_steps"]),
        ("", {"DELEGATE_MAX_STEPS": "many"}, ["DELEGATE_MAX_STEPS", "the environment", "many"]),
        ('commands = "maybe"', {}, ["commands", "delegate.toml", "sandboxed"]),
        ("max_steps = [", {}, ["delegate.toml", "TOML"]),
        ('[[endpoints]]\nname = "x"\nbase_url = "http://x"\nmodels = []', {}, ["endpoints[x].models"]),
        (ENDPOINT + "input_price = 1", {}, ["endpoints[x].models[m]", "output_price is missing; give"]),
        (ENDPOINT + "cached_input_price = 1", {}, ["endpoints[x].models[m]", "input_price is missing; give"]),
        (ENDPOINT + "prices = [{ input = 1 }]", {}, ["endpoints[x].models[m].prices[0].output", "add it"]),
        (
            ENDPOINT + "input_price = 1\noutput_price = 1\nprices = [{ input = 1, output = 1 }]",
            {},
            ["endpoints[x].models[m]", "the price is given twice"],
        ),
        (ENDPOINT + "color = 1", {}, ["endpoints[x].models[m].color", "remove it, or use one of id, tier"]),
        (MODEL.replace('family = "f"', ""), {}, ["models[m].family (in delegate.toml)", "it is missing; add it"]),
        (MODEL.replace("fast", "cheap"), {}, ["models[m].tier", "'deep', 'standard' or 'fast', not 'cheap'"]),
        (
            MODEL + "prices = [{ input = 1, output = 1, inptu = 1 }]",
            {},
            ["models[m].prices[0].inptu", "did you mean input? If not, remove it"],
        ),
        (MODEL + "judge_accuracy = 90", {}, ["models[m].judge_accuracy", "less than or equal to 1"]),
        ("[[models]]\ntier = 3", {}, ["models[0].id", "it is missing"]),
        ("models = 3", {}, ["models (in delegate.toml)"]),
        ('policy = "rules.toml"', {}, ["policy (in delegate.toml)", "write [policy]"]),
        ('[policy]\nirreversable = "ask"', {}, ["policy.irreversable", "did you mean irreversible?"]),
        ('[policy]\nirreversible = "never"', {}, ["policy.irreversible", "'allow', 'ask' or 'deny'", "never"]),
        (RULE + 'decision = "allow"', {}, ["policy.rules[0].decision", "'ask' or 'deny'"]),
        (RULE + 'decision = "ask"\ntool = ["a"]', {}, ["policy.rules[0].tool", "did you mean tools?"]),
        (RULE + 'decision = "ask"\narguments = {to = "("}', {}, ["policy.rules[0].arguments.to", "missing )"]),
        ("", {"DELEGATE_POLICY": "x"}, ["DELEGATE_POLICY", "write it in delegate.toml"]),
        ("[judge_accuracy]\ngpt-6-luna = 90", {}, ["judge_accuracy.gpt-6-luna", "less than or equal to 1", "90"]),
    ],
)
def test_a_mistake_names_its_source_its_field_and_the_fix(toml: str, environ: dict[str, str], words: list[str]) -> None:
    Path("delegate.toml").write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load_settings(environ)
    for word in words:
        assert word in str(caught.value)


def test_a_config_file_that_was_named_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load_settings({"DELEGATE_CONFIG": "nowhere.toml"})


WORDS = {
    "tier": "fast",
    "parent_tier": "fast",
    "max_tier": "parent-1",
    "min_tier": "fast",
    "effort": "low",
    "network": "loopback",
    "sandbox": "off",
    "commands": "deny",
    "max_output_tokens": "999",
    "result_chars": "999",
    "call_fields": "needs, attempts",
    "min_level": "seen",
    "judge_page_tokens": "9999",
    "web_search": "provider",
}
"""Values for the settings that don't accept `1`."""


@pytest.mark.parametrize("name", [name for name in Settings.model_fields if name not in ONLY_IN_FILES])
def test_a_setting_can_come_from_its_variable(name: str) -> None:
    assert load_settings({variable(name): WORDS.get(name, "1")}).model_fields_set == {name}


@pytest.mark.parametrize("name", ONLY_IN_FILES)
def test_a_setting_with_a_structure_cannot_come_from_a_variable(name: str) -> None:
    with pytest.raises(ConfigError, match=f"{variable(name)}: {name} can't be set by a variable"):
        load_settings({variable(name): "x"})


def test_a_path_in_the_settings_may_begin_with_the_home(home: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert load_settings({"DELEGATE_HOME": "~/del"}).home == tmp_path / "del"
    assert load_settings({}, home="~/del").home == Delegator(home="~/del").settings.home == tmp_path / "del"
    assert load_settings({"DELEGATE_HOME": "~nobody-has-this-name/x"}).home == Path("~nobody-has-this-name/x")
    (tmp_path / "own.toml").write_text('home = "~/other"\n')
    assert load_settings({"DELEGATE_CONFIG": "~/own.toml"}).home == tmp_path / "other"
    monkeypatch.setenv("XDG_DATA_HOME", "~/data")
    assert load_settings({}).home == tmp_path / "data" / "delegate"


def test_the_options_for_type_checkers_are_the_settings() -> None:
    assert list(SettingsOptions.__annotations__) == list(Settings.model_fields)


def test_an_option_accepts_what_its_setting_does() -> None:
    """The types that are written twice, up to constraints: lists, tables, and paths as text are accepted besides."""
    wider = {
        "home",
        "fetch_hosts",
        "call_fields",
        "endpoints",
        "models",
        "judge_accuracy",
        "policy",
        "mcp_servers",
        "roles",
    }
    options, types = get_type_hints(SettingsOptions), get_type_hints(Settings)
    assert {name for name in Settings.model_fields if options[name] != types[name]} <= wider


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("DELEGATE_MAX_STEP", ["DELEGATE_MAX_STEP ", "the environment", "did you mean DELEGATE_MAX_STEPS?"]),
        ("DELEGATE_MODLE", ["did you mean DELEGATE_MODEL?", "unset it"]),
        ("DELEGATE_ZZZ", ["DELEGATE_ZZZ ", "there is no such setting", "unset it, or give it another name"]),
    ],
)
def test_a_variable_of_no_setting_is_refused(name: str, words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        load_settings({name: "3"})
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize(
    "name",
    [
        "DELEGATE_MCP_TOKEN",
        "DELEGATE_SERVICE_HOST",
        "DELEGATE_PORT_80_TCP_ADDR",
        "DELEGATE_OWN_KEY",
        "DELEGATES",
        "MY_DELEGATE_MODLE",
    ],
)
def test_a_variable_with_another_purpose_is_left_alone(name: str) -> None:
    own_settings(ENDPOINT.replace("[[endpoints.models]]", 'key_env = "DELEGATE_OWN_KEY"\n[[endpoints.models]]'))
    assert load_settings({name: "x", "DELEGATE_EMPTY": " "}).max_steps == 30


def test_a_misspelled_option_is_refused_with_the_one_that_was_meant() -> None:
    misspelled: dict[str, Any] = {"max_stps": 3}
    for load in (load_settings, partial(override, Settings()), Delegator, partial(Delegator, Settings())):
        with pytest.raises(ConfigError, match=r"max_stps \(in the arguments\): .*did you mean max_steps\?"):
            load(**misspelled)


def test_an_option_replaces_one_of_the_given_settings(home: Path) -> None:
    given = Settings(home=home, max_steps=3, model="a")
    with Delegator(given, max_steps=5) as delegator:
        settings = delegator.settings
    assert (settings.max_steps, settings.model, settings.model_fields_set) == (5, "a", given.model_fields_set)
    with pytest.raises(ConfigError, match=r"max_steps \(in the arguments\): .*greater than or equal to 1"):
        Delegator(given, max_steps=0)


def test_options_beside_the_delegator_of_a_host_are_refused() -> None:
    with Delegator() as delegator, pytest.raises(ConfigError, match="max_steps: the delegator has its own settings"):
        host_tool.make_delegate_tool(delegator, max_steps=3)
