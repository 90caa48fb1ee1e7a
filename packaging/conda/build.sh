#!/bin/bash
# Recipe, never run.
set -euo pipefail
cmake -S "$SRC_DIR" -B build-conda -G Ninja $CMAKE_ARGS -DCMAKE_BUILD_TYPE=Release -DBUILD_TESTING=OFF \
  -DHVD_STATIC_AGENT=OFF -DHVD_PYTHON_DIR="${SP_DIR#"$PREFIX"/}"
ninja -C build-conda
cmake --install build-conda --prefix "$PREFIX"
