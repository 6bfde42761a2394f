# Everything runs from a clean checkout; the set-up is scripts/bootstrap.sh and is skipped when nothing changed.
PY := .venv/bin/python
PB := controller/api/pb
PROTO := signalbox/v1/signalbox.proto

.PHONY: lock proto

lock:  ## Pin every dependency with its hashes
	.venv/bin/uv pip compile -q --upgrade --all-extras --generate-hashes --no-emit-index-url --no-annotate --no-header \
		--build-constraints requirements/build-constraints.txt -p 3.11 -o requirements/lock.txt pyproject.toml

proto:  ## Generate the Python side of the API
	$(PY) -m grpc_tools.protoc -I proto --python_out=$(PB) --pyi_out=$(PB) --grpc_python_out=$(PB) $(PROTO)
	sed -i 's/^from signalbox\.v1 import/from controller.api.pb.signalbox.v1 import/' $(PB)/signalbox/v1/*_pb2_grpc.py
