#!/bin/sh
# A script for `pillion plugin exec`: appends each indication to a file, one line each.
# PILLION_PLUGIN_FILE names the file.
set -u
: "${PILLION_PLUGIN_FILE:?names no file}"
if [ -z "$PILLION_CLASS" ]; then
    echo "an indication without a class" >&2
    exit 65 # no attempt will do
fi
line=$(cat) || exit 75
printf '%s\n' "$line" >>"$PILLION_PLUGIN_FILE" || {
    echo "cannot write $PILLION_PLUGIN_FILE" >&2
    exit 75 # try again
}
