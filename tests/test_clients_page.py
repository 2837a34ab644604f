"""docs/clients.md says what is in scripts/clients/results.json, of clients that exist."""

from delegate.cli.mcp_clients import CLIENTS
from scripts.clients import page
from scripts.clients.driven import ALL

PAGE = page.FILE.read_text(encoding="utf-8")


def test_the_page_is_that_of_the_results() -> None:
    assert page.document() == PAGE, "run `python -m scripts.clients --page`"


def test_all_results_are_of_clients_that_can_be_played() -> None:
    assert set(page.load()) == {client.name for client in ALL}


def test_every_client_is_played_with_settings_that_can_be_installed() -> None:
    assert {client.settings for client in ALL if client.settings} <= set(CLIENTS)


def test_all_results_are_of_scenarios_that_are_shown() -> None:
    shown = {*page.PLAYED, "short timeout", "default timeout"}
    for client, entry in page.load().items():
        assert entry["outcomes"].keys() <= shown, client
        assert entry["facts"].keys() <= shown, client
