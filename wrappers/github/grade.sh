#!/usr/bin/env bash
# A step of a GitHub Classroom workflow: grades a folder, hands the result to the reporter.
#
#   grade.sh SUBMISSION      see grade_one.sh for EXERCISES, SANDBOX, LIMIT_S, PYTHON
#
# The step itself succeeds; the reporter, which is the next one, fails if a check did not pass.
set -uo pipefail

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
bash "$(dirname "${BASH_SOURCE[0]}")/../grade_one.sh" github "$1" "$work/result.json"
cat "$work/result.json"
printf 'result=%s\n' "$(base64 <"$work/result.json" | tr -d '\n')" >>"${GITHUB_OUTPUT:?is set by GitHub}"
