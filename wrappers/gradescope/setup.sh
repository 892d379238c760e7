#!/usr/bin/env bash
# Gradescope runs this once, when it builds the image: the course, without CUDA, and the sandbox.
set -euo pipefail

source="${AUTOGRADER:-/autograder}/source"
export DEBIAN_FRONTEND=noninteractive
apt-get update
apt-get install -y --no-install-recommends bubblewrap make python3 python3-venv
make -C "$source" setup CPU=1
