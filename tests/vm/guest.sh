#!/bin/sh
# Runs in the guest as root, once it is up: checks, and powers off.
python3 -u /opt/procd/check.py >/dev/ttyS0 2>&1
systemctl poweroff --force
