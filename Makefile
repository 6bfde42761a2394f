# Everything runs from a clean checkout; the set-up is scripts/bootstrap.sh and does nothing when nothing changed.
PY := .venv/bin/python
PB := client
PROTO := signalbox/v1/signalbox.proto
ETCD := controller/store/etcd_v3
ETCD_PB := $(ETCD)
CHAKRA := signalbox/traces/chakra_schema
BASELINE := proto/v1.binpb
PYTHON_CODE := client/signalbox controller offline mininet_topos benchmarks deploy/grafana tests
WITH_OVS := scripts/openvswitch.sh run
LABS := $(PY) -m pytest tests/lab --dist loadfile --tx '3*popen//python=scripts/lab_python.sh'
LOCK := .venv/bin/uv pip compile -q --generate-hashes --no-emit-index-url --no-annotate --no-header \
	--build-constraints requirements/build-constraints.txt \
	$(foreach name,client controller offline,--no-build-isolation-package signalbox-$(name) --no-emit-package signalbox-$(name)) -p 3.11

.DEFAULT_GOAL := help
.PHONY: help setup libraries dist deb demo demo-rewiring bench test test-unit test-wire test-lab test-os-ken test-real coverage coverage-unit coverage-wire mutants lint proto-check dashboard docs reference proto proto-baseline lock clean

help:  ## This list
	@awk -F ':.*##  *' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup:  ## Install what is missing (needs root only for system packages)
	@scripts/bootstrap.sh

libraries: setup  ## Also install PyTorch and Open MPI, for the tests with real jobs (SIGNALBOX_LIBRARIES=no: skip both)
	@[ "$$SIGNALBOX_LIBRARIES" = no ] || scripts/bootstrap.sh --libraries

dist: setup  ## Build the wheels of all distributions, Ryu's among them, into dist
	@rm -rf dist
	@scripts/wheels.sh dist

deb: setup  ## Build the Debian package of the controller, with its own Python environment, into dist (Debian 12)
	@scripts/deb.sh dist

demo-rewiring: setup  ## Optical switches wired for a training job, beside other wirings and one switch, under 5 minutes (root); results in out/demo-rewiring
	@$(WITH_OVS) $(PY) -m mininet_topos.rewiring --out out/demo-rewiring

demo: setup  ## The whole loop on an emulated fabric, under 4 minutes (root); results in out/demo
	@$(WITH_OVS) $(PY) -m mininet_topos.demo --out out/demo

bench: setup  ## Time planning (WORKLOADS=DIR for published ones too) and a small fabric (root); results in out/bench
	@$(PY) -m benchmarks plan --quick $(if $(WORKLOADS),--workloads $(WORKLOADS))
	@$(WITH_OVS) $(PY) -m benchmarks fabric --leaves 16 --spines 8 --quiet-s 10 --idle-s 10 --cuts 20
	@$(PY) -m benchmarks contention --parts example,recipe,recomputed --cases 20 --instances 30
	-@$(PY) -m benchmarks contention --parts headline,fabric --mixes 20 --seeds 1 --jobs 8,16 --budget-s 60

test: libraries  ## Everything that CI checks but the site: lint, types, import rules, generated code, all tests but long ones (root)
	@$(MAKE) --no-print-directory --jobs 5 --output-sync test-lab test-wire test-unit lint proto-check

# One worker runs all tests of a file, so that they share the processes that they start and what they build.
test-unit test-wire: test-%:
	@$(PY) -m pytest tests/$* -m 'not long' -n auto --dist loadfile

# Labs wait most of the time, and wire tests often do: they run beside each other and beside what computes.
test-lab:
	@$(LABS) -m 'not long'

test-os-ken: libraries  ## Everything that speaks OpenFlow once more, on os-ken instead of Ryu (root)
	@SIGNALBOX_OPENFLOW=os_ken $(PY) -m pytest tests/unit/southbound tests/wire -m 'not long' -n auto --dist loadfile
	@SIGNALBOX_OPENFLOW=os_ken $(LABS) -m 'not long'

test-real: libraries  ## What takes too long for `make test`: long tests, every fault, and runs that interrupt the demo and the lab at 20 instants (root)
	@$(LABS) -m 'long and not mirror'
	@$(WITH_OVS) $(PY) -m pytest tests/lab -m mirror
	@$(PY) -m pytest tests/unit tests/wire -m long -n auto --dist loadfile
	@$(PY) -m benchmarks interrupts
	@$(WITH_OVS) $(PY) -m benchmarks faults

coverage: libraries  ## Branch coverage of unit and wire tests, with a floor for each folder; results in out/coverage
	@rm -rf out/coverage && mkdir -p out/coverage
	@$(MAKE) --no-print-directory --jobs 2 --output-sync coverage-unit coverage-wire
	@$(PY) -m coverage combine -q
	@$(PY) -m coverage html -q -d out/coverage/html
	@$(PY) -m coverage json -q -o out/coverage/coverage.json
	@$(PY) -m tests.support.coverage_floors out/coverage/coverage.json

coverage-unit coverage-wire: coverage-%:
	@$(PY) -m coverage run -m pytest tests/$* -m 'not long'

mutants: setup  ## Put 400 small faults into the code, and say which of them the unit tests do not notice
	@$(PY) -m tests.support.mutation

# Each module is compiled once, not again in each of the hundreds of processes that tests start. None of them looks for
# plugins of pydantic in the metadata of every installed distribution, which takes 10 ms.
test test-unit test-wire test-lab test-os-ken test-real coverage mutants: export PYTHONDONTWRITEBYTECODE =
test test-unit test-wire test-lab test-os-ken test-real coverage mutants: export PYDANTIC_DISABLE_PLUGINS = __all__

lint: setup  ## Formatting, style, language, types, import rules, generated pages, and that the API stays compatible
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	$(PY) scripts/plain_english.py
	$(PY) scripts/router_size.py
	$(PY) scripts/reference_pages.py --check
	.venv/bin/mypy $(PYTHON_CODE)
	.venv/bin/lint-imports --no-logo
	.venv/bin/buf lint proto
	.venv/bin/buf breaking proto --against $(BASELINE)

proto: setup  ## Generate the Python side of the API
	$(PY) -m grpc_tools.protoc -I proto --python_out=$(PB) --pyi_out=$(PB) --grpc_python_out=$(PB) $(PROTO)
	$(PY) -m grpc_tools.protoc -I $(ETCD) --python_out=$(ETCD_PB) --pyi_out=$(ETCD_PB) etcd.proto
	@mkdir -p $(PB)/$(CHAKRA)
	$(PY) -m grpc_tools.protoc -I client/$(CHAKRA) --descriptor_set_out=$(PB)/$(CHAKRA)/et_def.binpb et_def.proto

proto-check: setup
	@mkdir -p out/proto-check/etcd && \
		$(MAKE) --silent --no-print-directory proto PB=out/proto-check ETCD_PB=out/proto-check/etcd
	diff -r -x __init__.py -x __pycache__ -x etcd.proto $(ETCD) out/proto-check/etcd
	diff -r -x __init__.py -x __pycache__ $(PB)/signalbox/v1 out/proto-check/signalbox/v1
	cmp $(PB)/$(CHAKRA)/et_def.binpb out/proto-check/$(CHAKRA)/et_def.binpb

proto-baseline: setup  ## Compare later changes of the API with the API as it is now
	.venv/bin/buf build proto --exclude-source-info -o $(BASELINE)

dashboard: setup  ## Generate the Grafana dashboards
	$(PY) deploy/grafana/generate.py

docs: setup  ## Build the site of the documentation, which checks every link; results in out/site
	@cmp -s requirements/docs.txt out/venv-docs/requirements.txt || { .venv/bin/uv venv -q --clear out/venv-docs && \
		.venv/bin/uv pip sync -q --require-hashes --python out/venv-docs/bin/python requirements/docs.txt && \
		cp requirements/docs.txt out/venv-docs/requirements.txt; }
	@out/venv-docs/bin/python scripts/docs_site.py

reference: setup  ## Generate the pages about commands, settings and the Python API
	$(PY) scripts/reference_pages.py

lock: setup  ## Pin every dependency with its hashes, and those of each image, the Debian package and the site
	$(LOCK) --upgrade --all-extras -o requirements/lock.txt pyproject.toml
	$(LOCK) -c requirements/lock.txt -o requirements/controller.txt pyproject.toml
	$(LOCK) -c requirements/lock.txt -o requirements/emulator.txt offline/pyproject.toml
	$(LOCK) -c requirements/lock.txt -o requirements/web.txt --extra web client/pyproject.toml
	$(LOCK) -c requirements/lock.txt -o requirements/kubernetes.txt --extra kubernetes client/pyproject.toml
	$(LOCK) -c requirements/lock.txt -o requirements/deb.txt --extra top --extra web pyproject.toml client/pyproject.toml
	$(LOCK) --upgrade --group docs -o requirements/docs.txt
	awk '/^uv==/ { uv = 1 } uv; uv && !/\\$$/ { exit }' requirements/lock.txt > requirements/uv.txt

clean:  ## Remove the environment, caches and results
	rm -rf .venv .venv-torch out dist build client/build .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache *.egg-info client/*.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
