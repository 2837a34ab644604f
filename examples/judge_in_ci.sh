#!/bin/sh
# Judge an agent's work in CI, whoever did it: the step fails unless the verdict is PASS.
#
# Shows `delegate judge`: the agent's own report and the checkout go in, a verdict and an exit code come out.
# A step of a workflow runs it after the agent has ended:
#
#     OPENAI_API_KEY=... examples/judge_in_ci.sh report.md path/to/checkout
#
# Exit codes: 0 PASS, 1 the work is bad, 2 the call was wrong, 3 nobody could look (worth another try later).

set -u
report=${1:?"usage: judge_in_ci.sh REPORT CHECKOUT"}
checkout=${2:?"usage: judge_in_ci.sh REPORT CHECKOUT"}

delegate judge \
    --goal "Fix the rounding bug in prices.py and note the fix in CHANGELOG.md." \
    --report "$report" \
    --workspace "$checkout" \
    -c "shell: python3 -m unittest -q" \
    -c "file: CHANGELOG.md" \
    -c "file CHANGELOG.md: it says which bug was fixed" \
    --format json > verdict.json
code=$?

reason() {
    python3 -c 'import json; verdict = json.load(open("verdict.json")); print(verdict["code"], verdict["reasoning"])'
}

case $code in
0) echo "PASS" ;;
1) echo "FAIL: $(reason)" ;;
3) echo "nobody could look: $(reason)" ;;
esac
exit $code
