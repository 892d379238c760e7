#!/usr/bin/env bash
# Grade one submission and leave a result for a platform, whatever happens.
#
#   grade_one.sh gradescope|github SUBMISSION RESULT
#
#   EXERCISES   such as "ex00 ex02"; all if empty
#   SANDBOX     required (default), or optional: where there is none, grade without, and say so
#   LIMIT_S     seconds for everything (default 540)
#   PYTHON      an interpreter that has the course (default: .venv beside wrappers/)
#
# Exit codes are those of `grade`: 0 all passed, 1 some not, 2 a wrong request, 3 our fault,
# 4 no sandbox. Where the result is not the submission's fault it holds no score.
set -uo pipefail

format="$1" submission="$2" result="$3"
course="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-$course/.venv/bin/python}"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT

# $1: why. Stands until something better is known.
no_result() {
  local text="$1 Your instructor will have it graded again."
  if [ "$format" = gradescope ]; then
    printf '{"output": "%s", "stdout_visibility": "hidden", "tests": []}\n' "$text"
  else
    printf '{"version": 1, "status": "error", "max_score": 0, "tests": [{"name": "grading", '
    printf '"status": "error", "score": 0, "message": "%s", "test_code": "", ' "$text"
    printf '"filename": "", "line_no": 0, "execution_time": 0}]}\n'
  fi >"$work/result" && mv "$work/result" "$result"
}

grade() {
  local only=() exercise
  for exercise in ${EXERCISES:-}; do only+=(--exercise "$exercise"); done
  timeout --kill-after=10 "${LIMIT_S:-540}" "$python" -m ddp_grading grade \
    "$work/in" --roster "$work/roster.csv" --out "$work/out" ${only[@]+"${only[@]}"} "$@"
}

result="$(cd "$(dirname "$result")" && pwd)/$(basename "$result")"
no_result "The grader did not start."
mkdir "$work/in"
if ! cp -RP "$submission" "$work/in/submission"; then
  no_result "The submission cannot be read."
  exit 3
fi
printf 'id\nsubmission\n' >"$work/roster.csv"
cd "$course" || exit 3

grade
code=$?
if [ "$code" = 4 ] && [ "${SANDBOX:-required}" = optional ]; then
  echo "No sandbox here; SANDBOX=optional allows to grade without, and the result says so."
  grade --unsafe-no-sandbox
  code=$?
fi
case "$code" in
  0 | 1 | 3)
    "$python" -m ddp_grading export "$work/out" "$format" --to "$work/export"
    if [ -s "$work/export" ]; then
      chmod a+r "$work/export" && mv "$work/export" "$result"
    else
      no_result "The grader failed."
      code=3
    fi
    ;;
  4) no_result "There is no sandbox where this was graded." ;;
  124 | 137) no_result "Grading took longer than ${LIMIT_S:-540} s." ;;
  *) no_result "The grader failed." ;;
esac
exit "$code"
