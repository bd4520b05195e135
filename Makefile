# make demo   sets everything up, trains the phrasebook translator and uses it
# make test   format, lint, types and tests
PYTHON ?= python3
BIN := .venv/bin
GLASSFORMER := $(BIN)/glassformer
BOOK := runs/phrasebook
RUN := runs/demo

.PHONY: demo test setup browser clean
.DELETE_ON_ERROR:

setup: .venv/ready

.venv/ready: requirements.lock pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

demo: setup
	rm -rf $(RUN)
	$(GLASSFORMER) phrasebook --out $(BOOK)
	$(GLASSFORMER) train $(BOOK)/train.tsv --valid $(BOOK)/valid.tsv --test $(BOOK)/test.tsv \
		--src en --tgt fr --preset tiny --budget 4m --set validation.film="We eat bread in the garden." --out $(RUN)
	$(GLASSFORMER) translate $(RUN) "we eat bread" --attention --picture $(RUN)/attention.svg
	@echo
	@echo "Your own translator, from a TSV file with two columns or from two text files, in one hour:"
	@echo "  $(GLASSFORMER) train yours.tsv --src en --tgt fr --budget 1h --out runs/yours && $(GLASSFORMER) translate runs/yours"

.venv/ready-to-test: .venv/ready requirements-test.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -r requirements-test.lock
	touch $@

# The tests of pages look at them in Chromium. Without it they are left out, and say so.
browser:
	@command -v chromium >/dev/null || { apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium; } \
		|| echo "Chromium is not there and could not be installed: the tests of pages in a browser are left out."

test: .venv/ready-to-test browser
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n auto --dist loadfile

clean:
	rm -rf .venv runs build dist
