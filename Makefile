# make demo   sets everything up, trains the phrasebook translator and uses it
# make test   format, lint, types and tests
# make bench  how fast it is here; make bench-peers, bench-quality: beside its peers
PYTHON ?= python3
BIN := .venv/bin
GLASSFORMER := $(BIN)/glassformer
BOOK := runs/phrasebook
RUN := runs/demo

PEERS := .venv-peers/bin
RESULTS := bench/results
TRAIN_PAIRS := $(or $(PAIRS),$(BOOK)/train.tsv)
VALID_PAIRS := $(or $(VALID),$(BOOK)/valid.tsv)

.PHONY: demo test setup browser bench bench-peers bench-quality clean
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

# How fast the product is here, alone: about five minutes. Results lie in runs/bench.
bench: setup
	mkdir -p runs/bench
	$(BIN)/python bench/decoding.py --shape base small --cell 1,1 1,4 8,1 32,4 --ways float32 int8 bf16 \
		--first-token --json runs/bench/decoding.json
	$(BIN)/python bench/training_step.py --ways glassformer products --json runs/bench/training_step.json
	$(BIN)/python bench/text_generation.py --ways float32 int8 bf16 --json runs/bench/text_generation.json
	$(BIN)/python bench/cold_start.py --json runs/bench/cold_start.json
	$(BIN)/python bench/report.py runs/bench --out runs/bench/benchmarks.md

.venv-peers/ready: requirements.lock requirements-test.lock bench/requirements-peers.lock pyproject.toml
	$(PYTHON) -m venv .venv-peers
	echo '*' > .venv-peers/.gitignore
	$(PEERS)/pip install --quiet --disable-pip-version-check -r requirements.lock
	$(PEERS)/pip install --quiet --disable-pip-version-check --no-deps -r requirements-test.lock \
		-r bench/requirements-peers.lock
	$(PEERS)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $@

# The product beside its peers, about an hour of a quiet machine; writes docs/benchmarks.md. PAIRS, VALID: real pairs,
# TSV; MODEL: a translator trained on such pairs, for real sentences. Without them the phrasebook stands in.
bench-peers: .venv-peers/ready
	$(if $(PAIRS),,test -d $(BOOK) || $(PEERS)/glassformer phrasebook --out $(BOOK))
	mkdir -p $(RESULTS)
	$(PEERS)/python bench/decoding.py --first-token --memory base --json $(RESULTS)/decoding.json
	$(PEERS)/python bench/decoding.py --threads 1 --shape base small --cell 1,1 1,4 8,1 32,4 \
		--ways int8 bf16 transformers ctranslate2-int8 --json $(RESULTS)/decoding_1_thread.json
	$(if $(MODEL),$(PEERS)/python bench/decoding.py --model $(MODEL) $(VALID_PAIRS) \
		--ways float32 int8 bf16 transformers ctranslate2-int8 --json $(RESULTS)/sentences.json)
	$(if $(MODEL),$(PEERS)/python bench/decoding.py --model $(MODEL) $(VALID_PAIRS) --workers 2 \
		--ways float32 int8 ctranslate2-int8 --json $(RESULTS)/sentences_workers.json)
	$(PEERS)/python bench/training_step.py --memory base --json $(RESULTS)/training_step.json
	$(PEERS)/python bench/tokens.py $(TRAIN_PAIRS) $(VALID_PAIRS) --set data.batch_tokens=6000 --json $(RESULTS)/tokens.json
	$(PEERS)/python bench/text_generation.py --json $(RESULTS)/text_generation.json
	$(PEERS)/python bench/embeddings.py $(TRAIN_PAIRS) --json $(RESULTS)/embeddings.json
	$(PEERS)/python bench/cold_start.py $(MODEL) --json $(RESULTS)/cold_start.json
	$(PEERS)/python bench/growth.py --corpus $(TRAIN_PAIRS) --svg docs/images --json $(RESULTS)/growth.json
	$(PEERS)/python bench/report.py $(RESULTS)

# BLEU after MINUTES of training, beside the peers: three times as long.
MINUTES ?= 10 25
bench-quality: .venv-peers/ready
	$(if $(PAIRS),,test -d $(BOOK) || $(PEERS)/glassformer phrasebook --out $(BOOK))
	mkdir -p $(RESULTS)
	$(PEERS)/python bench/quality.py $(TRAIN_PAIRS) $(VALID_PAIRS) --minutes $(MINUTES) --json $(RESULTS)/quality.json
	$(PEERS)/python bench/report.py $(RESULTS)

clean:
	rm -rf .venv .venv-peers runs build dist
