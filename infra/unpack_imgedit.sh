#!/usr/bin/env bash
# Join and unpack ImgEdit's archives of single edits, each to where its table looks for the pictures.
#   bash infra/unpack_imgedit.sh data/ImgEdit
set -euo pipefail
folder=${1:-data/ImgEdit}/Singleturn
archives=$(ls "$folder" 2>/dev/null | sed -n 's/[.]tar\([.]split[.].*\)\{0,1\}$//p' | sort -u) || true
if [ -z "$archives" ]; then
  echo "unpack_imgedit: $folder has no archives; name the folder that ImgEdit was downloaded to" >&2
  exit 2
fi

cd "$folder"
for archive in $archives; do
  [ -e ".$archive.unpacked" ] && continue
  echo "$archive"
  into=. strip=0
  case $archive in
    action_part*) strip=1 ;;  # its table has file names alone
    results_adjust_canny_laion_part2) into=$archive ;;  # it has no folder of its own
    results_replace_part0) into=replace strip=1 ;;      # its table calls it so
  esac
  mkdir -p "$into"
  ls | grep -E "^$archive[.]tar([.]split[.].*)?$" | sort -V | xargs cat |
    tar x -C "$into" --strip-components="$strip"
  touch ".$archive.unpacked"  # a second call goes on where the first was stopped
done
