#!/bin/sh
# Builds no library: says what of backend rcclx's is here, and installs torchcomms with it.
exec "${PYTHON:-python3}" "$(dirname "$0")/tools/install_for.py" rcclx "$@"
