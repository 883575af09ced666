# Only python3 is required: the first target that needs a virtual environment creates .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

# To run the tests of the Postgres engine on your own server, set URL to the address of a superuser. Postgres 15 or newer, with
# pgvector.
POSTGRES_TESTS := tests/conformance/test_postgres.py tests/engines/postgres tests/upgrades tests/engines/postgres/compat tests/security

# The processes of a test run share compiled code: without it, each of them compiles everything again.
unexport PYTHONDONTWRITEBYTECODE
PYTEST := $(BIN)/python -m pytest --durations=25
QUICK := not slow and not costly and not postgres and not browser and not process and not server
# Folders without quick tests, and the plugin of the fuzzer: a quick run skips them, because importing them takes seconds.
WITHOUT := $(foreach path,e2e crash replication testing server/rest/test_openapi.py server/rest/test_openapi_all_checks.py,--ignore=tests/$(path)) -p no:schemathesis

# Two environments with other people's clients, because some of them need an older version of the same package.
CLIENTS := .venv-clients
CLIENTS_READY := $(CLIENTS)/newest/.ready $(CLIENTS)/openai-2/.ready

AGAIN := $(MAKE) --no-print-directory again  # under a name of its own, so that `make -n test` runs nothing

.PHONY: help run web test quick lowest wheel-test licences sbom again typescript test-clients test-ecosystem postgres citus supabase pgbouncer chromium firefox screenshots lint format metrics bench \
        bench-smoke docs soak crash replication properties plans clean

help:
	@echo "make run     the server on http://127.0.0.1:8484/ (offline, no key)"
	@echo "make web     build the web app (make run and make test do it when it is needed)"
	@echo "make test    the tests"
	@echo "make quick   the tests that need no Postgres, browser, server or other process"
	@echo "make typescript  build and test the TypeScript package"
	@echo "make lowest  the tests with the oldest supported versions of the dependencies"
	@echo "make wheel-test  install the wheel into empty environments, with each extra by itself"
	@echo "make licences, make sbom  a page with the licences of all dependencies, and an SBOM (CycloneDX)"
	@echo "make test-clients  test SDKs, frameworks and generated clients, and write the table of results"
	@echo "make test-ecosystem  test the adapters with every framework, and write the table of results"
	@echo "make postgres URL=postgresql://…  the tests of the Postgres engine, on that server"
	@echo "make citus URL=postgresql://… [SPARE=postgresql://…]  the guarantees on a Citus cluster; URL is its coordinator"
	@echo "make lint    ruff, mypy, import-linter, the wording of comments and messages, tsc"
	@echo "make metrics measure the source, and compare it with procrastinate, starlette and httpx"
	@echo "make docs    build the documentation site in build/site"
	@echo "make bench   measure speed and size, as ratios to a baseline of the same run"
	@echo "make bench-smoke  run every benchmark once with tiny sizes, without checking times"
	@echo "make soak    a server under load for ten minutes: its memory must stay flat"
	@echo "make crash   the long durability test: kill -9, 200 times"
	@echo "make supabase     every guarantee through Supabase's API, as users and as the application"
	@echo "make replication  kill a Postgres primary under load; the replica must have every acknowledged turn"
	@echo "make plans        check the plans of the hot queries on Postgres, in a tenant of a million turns"
	@echo "make properties   the long property tests: tens of thousands of random histories and hostile texts"

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade "pip>=25.1"
	$(BIN)/python -m pip install --quiet --editable . --group dev
	@touch $(READY)

run: $(READY) web
	$(BIN)/palaver serve --open

# If Node is not installed, it comes from a wheel. Without either, the server shows the API instead of the app.
web: $(READY)
	@$(BIN)/python web/build.py --node-from-wheel --if-possible

test: $(READY) pgbouncer chromium web
	@$(BIN)/python web/build.py test --if-possible
	@$(BIN)/python -m tests.e2e.browser
	$(PYTEST) -n 6 --dist worksteal || { test $$? -eq 1 && $(AGAIN); }

quick: $(READY)
	$(PYTEST) -n 3 --dist worksteal -m "$(QUICK)" $(WITHOUT) --hypothesis-profile "fewest examples"

# The oldest versions of all dependencies that pyproject.toml allows together, in their own environment. uv installs them,
# because pip cannot choose the oldest. Tests of adapters need current versions of their frameworks.
LOWEST := .venv-lowest
$(LOWEST)/.ready: pyproject.toml
	$(PYTHON) -m venv $(LOWEST)
	$(LOWEST)/bin/python -m pip install --quiet uv
	$(LOWEST)/bin/uv pip install --quiet --python $(LOWEST)/bin/python --editable ".[all]" --group quick --resolution lowest-direct
	@touch $@

lowest: $(LOWEST)/.ready
	$(LOWEST)/bin/python -m pytest -n 3 --dist worksteal -m "$(QUICK)" $(WITHOUT) --hypothesis-profile "fewest examples" \
	  $(foreach path,adapters server/compat/test_openai_agents.py engines/supabase/test_compat.py tools/test_licences.py,--ignore=tests/$(path))

# The wheel, built and installed into empty environments: the base, and each extra by itself. Some minutes.
wheel-test: $(READY)
	$(PYTEST) tests/deploy/test_wheel.py -m "slow or not slow" -n 2

# Of everything that `palaver[all]` brings: a page of licences, and a CycloneDX list in build/sbom.json.
licences: $(READY)
	$(BIN)/python -m tools.licences

RELEASED := build/release
sbom:
	$(PYTHON) -m venv --clear $(RELEASED)
	$(RELEASED)/bin/python -m pip install --quiet ".[all]"
	$(PYTHON) -m venv $(RELEASED)-tools
	$(RELEASED)-tools/bin/python -m pip install --quiet cyclonedx-bom
	$(RELEASED)-tools/bin/cyclonedx-py environment --pyproject pyproject.toml --of JSON -o build/sbom.json $(RELEASED)/bin/python
	$(RELEASED)/bin/python -m tools.sbom_version build/sbom.json

# Run the failed tests once more, alone. A test that passes now depends on the load of the machine: it is listed at the end,
# and must be fixed. With CI=true, more than two such tests fail the run.
MOST_AGAIN := 2
FAILED := .pytest_cache/v/cache/lastfailed
again:
	@echo "== SOME TESTS FAILED. The tests listed above run once more, alone."
	@cp $(FAILED) $(FAILED)-at-first
	$(BIN)/python -m pytest --last-failed --last-failed-no-failures none --maxfail 5 --verbose
	@echo "== These tests pass alone, but must still be fixed:"; cat $(FAILED)-at-first
	@test "$$CI" != true || test $$(grep -c true $(FAILED)-at-first) -le $(MOST_AGAIN) \
	|| { echo "== In CI more than $(MOST_AGAIN) of them are a failure."; exit 1; }

$(CLIENTS)/newest/.ready: tests/clients/requirements.txt
$(CLIENTS)/openai-2/.ready: tests/clients/requirements-openai-2.txt
$(CLIENTS_READY):
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(@D)/bin/python -m pip install --quiet -r $<
	@touch $@

# The frameworks of the adapters, in an environment of their own.
ECOSYSTEM := .venv-ecosystem
$(ECOSYSTEM)/.ready: pyproject.toml
	$(PYTHON) -m venv $(ECOSYSTEM)
	$(ECOSYSTEM)/bin/python -m pip install --quiet --upgrade "pip>=25.1"
	$(ECOSYSTEM)/bin/python -m pip install --quiet --editable . --group dev --group ecosystem
	@touch $@

test-ecosystem: $(ECOSYSTEM)/.ready
	$(ECOSYSTEM)/bin/python -m tests.adapters -n 2

typescript: $(READY)
	$(BIN)/python -m tools.openapi_document clients/typescript/openapi.json
	cd clients/typescript && npm ci --ignore-scripts && npm run build
	$(BIN)/python -m pytest tests/clients/test_typescript.py

test-clients: $(READY) $(CLIENTS_READY)
	PALAVER_CLIENTS=$(CLIENTS) $(BIN)/python -m tests.clients

postgres: $(READY) pgbouncer
	@test -n "$(URL)" || { echo "make postgres URL=postgresql://superuser@host/postgres"; exit 2; }
	PALAVER_TEST_POSTGRES_URL="$(URL)" $(BIN)/python -m pytest -n 3 $(POSTGRES_TESTS)

# A superuser's address at a database of the coordinator that has the extension and its nodes. The tests create a scratch
# database on every server and drop it. SPARE: a server with the extension that is not a node yet; it is added and filled.
citus: $(READY)
	@test -n "$(URL)" || { echo "== SKIPPED: nothing was tested on Citus. make citus URL=postgresql://superuser@coordinator/database"; exit 2; }
	PALAVER_TEST_CITUS_URL="$(URL)" PALAVER_TEST_CITUS_SPARE_URL="$(SPARE)" $(BIN)/python -m pytest tests/engines/citus

# pgbouncer is installed if this runs as root. If that fails, the tests that need it are skipped.
APT := RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -qq
pgbouncer:
	@PATH=$$PATH:/usr/sbin; command -v pgbouncer >/dev/null \
	|| test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
	|| { $(APT) install -y --no-install-recommends pgbouncer || \
	     { $(APT) update && $(APT) install -y --no-install-recommends pgbouncer; }; } >/dev/null 2>&1 || true

# The same for the browser of the end-to-end tests.
chromium:
	@command -v chromium google-chrome chromium-browser >/dev/null \
	|| test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
	|| { $(APT) install -y --no-install-recommends chromium || \
	     { $(APT) update && $(APT) install -y --no-install-recommends chromium; }; } >/dev/null 2>&1 || true

# The long form of the browser tests: the app in Debian's Firefox, over WebDriver BiDi.
firefox: $(READY) web
	@command -v firefox-esr firefox >/dev/null || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null \
	|| { $(APT) install -y --no-install-recommends firefox-esr || \
	     { $(APT) update && $(APT) install -y --no-install-recommends firefox-esr; }; } >/dev/null 2>&1 || true
	$(BIN)/python -m pytest tests/e2e/test_firefox.py -m "slow or not slow"

screenshots: $(READY) chromium web
	$(BIN)/python -m tests.e2e.screenshots

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/python -m tools.sync_stub --mypy
	$(BIN)/lint-imports
	@$(BIN)/python -m tools.prose_check
	@$(BIN)/python web/build.py check --if-possible

# The documentation as a site: open build/site/index.html, or serve the folder. The search works in both.
docs: $(READY)
	@$(BIN)/python -m pip install --quiet zensical
	$(BIN)/zensical build --strict
	@$(BIN)/python -m tools.site_check build/site

format: $(READY)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

metrics: $(READY)
	@$(BIN)/python -m pip install --quiet -r tools/requirements.txt
	@$(BIN)/python -m tools.code_metrics src/palaver procrastinate starlette httpx

bench: $(READY)
	$(BIN)/python -m pip install --quiet -r bench/requirements.txt
	$(BIN)/python -m bench

bench-smoke: $(READY)
	$(PYTEST) tests/bench/test_bench_runs.py -m "slow or not slow" -n 2

soak: $(READY)
	$(BIN)/python -m bench.soak

crash: $(READY)
	$(BIN)/python -m pytest tests/crash -m "slow or not slow" --kills 200

supabase: $(READY)
	$(PYTEST) tests/engines/supabase -m "slow or not slow" -n 2

replication: $(READY)
	$(BIN)/python -m pytest tests/replication -m "slow or not slow"

# Ten to twenty minutes, most of them for the vector index, and 4 GB of disk.
plans: $(READY)
	$(BIN)/python -m pytest tests/engines/postgres/test_plans_of_many_turns.py -m "slow or not slow" --timeout 3600

properties: $(READY)
	$(BIN)/python -m pytest tests -m "slow or property" --hypothesis-profile "many examples" -n 2 --timeout 3600

clean:
	rm -rf $(VENV) $(LOWEST) $(ECOSYSTEM) $(CLIENTS) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis bench/results
