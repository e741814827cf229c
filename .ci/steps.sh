# Steps of a check, for .ci/run and .ci/full: each runs to its end, one after another, whatever the ones before it gave.
#
#   step NAME MINUTES COMMAND...   run COMMAND (functions of the caller included) for at most MINUTES
#   report                         print a table of all steps; status 0 where none is red
#
# A command that ends with status 77 says in its last line what is missing on this machine: the step counts as absent.

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/logs"
results=() rows=()

step() {
  local name=$1 minutes=$2 log began=$SECONDS status result=red why=
  shift 2
  log=$work/logs/${#rows[@]}
  printf '\n== %s\n' "$name"
  export -f $(compgen -A function)
  timeout -k 30 "$((minutes * 60))" bash -euo pipefail -c '"$@"' step "$@" </dev/null 2>&1 | tee "$log"
  status=${PIPESTATUS[0]}
  case $status in
    0) result=green ;;
    77) result=absent why=$(tail -n 1 "$log") ;;
    124 | 137) why="not done after $minutes minutes; $(failures "$log")" ;;
    *) why=$(failures "$log") ;;
  esac
  results+=("$result")
  rows+=("$(printf '%-36s %7d  %-6s  %s' "$name" "$((SECONDS - began))" "$result" "${why:0:400}")")
}

# Print the first names that failed in a log, or its last line.
failures() {
  local names
  names=$(grep -oE '^(FAILED|ERROR) [^ ]+' "$1" | head -n 3 | cut -d ' ' -f 2 | paste -sd ' ' || true)
  printf '%s' "${names:-$(grep -v '^ *$' "$1" | tail -n 1)}"
}

count() { printf '%s\n' "${results[@]}" | grep -c "^$1$" || true; }

report() {
  printf '\n%-36s %7s  %-6s  %s\n' step seconds result 'first failures'
  printf '%s\n' "${rows[@]}"
  printf '\nsteps: %d passed, %d failed, %d skipped\n' "$(count green)" "$(count red)" "$(count absent)"
  [ "$(count red)" -eq 0 ]
}

# Print every Python here that pyproject.toml allows and that has venv, the oldest first: version and path.
# What stands on the path may be a shim of pyenv that serves one version, so pyenv's own versions are looked at, too.
pythons() {
  local candidate least
  least=$(sed -n 's/^requires-python = ">=\(.*\)"$/\1/p' pyproject.toml)
  {
    type -aP python3 $(compgen -c python3. | grep -x 'python3\.[0-9]*') || true
    if command -v pyenv >/dev/null; then printf '%s\n' "$(pyenv root)"/versions/*/bin/python3; fi
  } | while read -r candidate; do
    "$candidate" -c "
import sys, ensurepip, venv
least = tuple(map(int, '$least'.split('.')))
if sys.version_info[: len(least)] >= least:
    print('.'.join(map(str, sys.version_info[:3])), sys.executable)" 2>/dev/null || true
  done | sort -u | sort -V
}

# Copy the files that git tracks, as they are now, into a new folder with nothing beside it.
copy_alone() {
  mkdir -p "$1"
  git ls-files -z | tar --null -T - -cf - | tar -xf - -C "$1"
}

# Make pip install the exact versions that .ci/constraints/ has for a Python; none where it has no file for it.
constrain() {
  local file
  file=$PWD/.ci/constraints/$("$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])').txt
  if [ -f "$file" ]; then export PIP_CONSTRAINT=$file; else unset PIP_CONSTRAINT; fi
}

# The README's two commands, one a line: the first trains, the second tests; each makes .venv.
mapfile -t commands < <(grep '^python3 -m venv \.venv && ' README.md)
if [ "${#commands[@]}" -ne 2 ]; then
  echo "README.md: expected two commands that make the environment, found ${#commands[@]}" >&2
  exit 2
fi
found=$(pythons)
if [ -z "$found" ]; then
  echo "no Python that pyproject.toml allows" >&2
  exit 2
fi
oldest=$(head -n 1 <<<"$found" | cut -d ' ' -f 2-)
newest=$(tail -n 1 <<<"$found" | cut -d ' ' -f 2-)
root=$PWD
export PIP_DISABLE_PIP_VERSION_CHECK=1 root work oldest newest

# Print the part of a command of README's that makes the environment, by `python`.
install_of() { printf '%s' "${1% && *}" | sed "s|^python3|$2|"; }

# Two epochs of README's example on two ranks, in the folder of a clone that has its .venv.
digits() {
  local command=$1
  command=${command##* && }
  bash -euo pipefail -c "${command/-n 4/-n 2} --epochs 2 --checkpoints $work/checkpoints" | tee "$work/digits.log"
  tail -n 1 "$work/digits.log" | grep -q '^test accuracy'
  rm -r "$work/checkpoints"
}
