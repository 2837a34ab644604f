"""The catalog in force: the one that ships, with the models and measurements that an operator declares."""

from collections.abc import Iterable

from delegate.errors import ConfigError
from delegate.models.catalog import Catalog, Model, Price
from delegate.settings import DeclaredEndpoint, DeclaredModel, Settings

PROVIDERS = ("openai", "anthropic", "google")
"""Whose own endpoints there are."""
_FLAT_PRICES = frozenset(("input_price", "output_price", "cached_input_price"))


def catalog_in_force(settings: Settings) -> Catalog:
    """The shipped catalog with `models`, the models of `endpoints`, and `judge_accuracy` over all of them.

    Raises ConfigError for a name that is claimed twice, a place that isn't there, and an accuracy of no model.
    """
    for model in settings.models:
        _check_place(model, settings.endpoints)
    declared = (*settings.models, *declared_models(settings.endpoints))
    return Catalog.shipped().with_models(declared).with_accuracy(settings.judge_accuracy)


def declared_models(endpoints: Iterable[DeclaredEndpoint]) -> tuple[Model, ...]:
    """The models that an operator's own endpoints serve."""
    return tuple(_declared(endpoint, model) for endpoint in endpoints for model in endpoint.models)


def _declared(endpoint: DeclaredEndpoint, model: DeclaredModel) -> Model:
    fields = model.model_dump(exclude={"prices", *_FLAT_PRICES})
    return Model(provider=endpoint.protocol, endpoint=endpoint.name, prices=_prices(model), **fields)


def _prices(model: DeclaredModel) -> tuple[Price, ...]:
    if model.input_price is None or model.output_price is None:
        return model.prices
    return (Price(input=model.input_price, output=model.output_price, cached_input=model.cached_input_price),)


def _check_place(model: Model, endpoints: Iterable[DeclaredEndpoint]) -> None:
    if model.endpoint is None and model.provider not in PROVIDERS:
        mend = f"there is no provider {model.provider!r}; use one of {', '.join(PROVIDERS)}, or declare an endpoint"
        raise ConfigError(f"delegate.toml: model {model.id}: provider: {mend}")
    places = {(endpoint.protocol, endpoint.name) for endpoint in endpoints}
    if model.endpoint is not None and (model.provider, model.endpoint) not in places:
        mend = f"no endpoint {model.endpoint!r} that speaks {model.provider} is declared; add it to [[endpoints]]"
        raise ConfigError(f"delegate.toml: model {model.id}: endpoint: {mend}")
