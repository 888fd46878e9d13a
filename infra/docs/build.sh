#!/usr/bin/env bash
# Build the documentation site into build/site, or into the folder that is named; any warning, such
# as a link to nothing, is an error. `bash infra/docs/build.sh && python -m http.server -d build/site`
set -euo pipefail
folder=${1:-}
[[ -z $folder || $folder = /* ]] || folder=$PWD/$folder
source "$(dirname "$0")/../install.sh"
export NO_MKDOCS_2_WARNING=1  # an advertisement, which is no warning of ours
exec .venv/bin/python -m mkdocs build --quiet --strict --config-file infra/docs/mkdocs.yml \
  --site-dir "${folder:-$PWD/build/site}"
