"""Settings come from arguments, environment, delegate.toml and defaults, in this order; mistakes are named."""

from pathlib import Path

import pytest

from delegate.errors import ConfigError
from delegate.settings import load_settings


def test_arguments_outrank_the_environment_which_outranks_the_file() -> None:
    Path("delegate.toml").write_text('tier = "deep"\nmax_steps = 5\nmodel = "a"\n')
    settings = load_settings({"DELEGATE_MAX_STEPS": "6", "DELEGATE_MODEL": "b"}, model="c")
    assert (settings.tier, settings.max_steps, settings.model) == ("deep", 6, "c")


def test_a_list_in_the_environment_is_separated_by_commas() -> None:
    assert load_settings({"DELEGATE_FETCH_HOSTS": "a.test, b.test:81"}).fetch_hosts == ("a.test", "b.test:81")


@pytest.mark.parametrize(
    ("toml", "environ", "words"),
    [
        ("max_stps = 5", {}, ["max_stps", "delegate.toml", "max_steps"]),
        ("", {"DELEGATE_MAX_STEPS": "many"}, ["DELEGATE_MAX_STEPS", "the environment", "many"]),
        ('commands = "maybe"', {}, ["commands", "delegate.toml", "sandboxed"]),
        ("max_steps = [", {}, ["delegate.toml", "TOML"]),
        ('[[endpoints]]\nname = "x"\nbase_url = "http://x"\nmodels = []', {}, ["endpoints.0.models"]),
    ],
)
def test_a_mistake_names_source_field_and_mend(toml: str, environ: dict[str, str], words: list[str]) -> None:
    Path("delegate.toml").write_text(toml)
    with pytest.raises(ConfigError) as caught:
        load_settings(environ)
    for word in words:
        assert word in str(caught.value)


def test_a_config_file_that_was_named_must_exist() -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml"):
        load_settings({"DELEGATE_CONFIG": "nowhere.toml"})
