#!/bin/sh
# Makes the secrets that compose.yaml asks for. What is there stays as it is.
set -eu
cd "$(dirname "$0")"

# Compose hands these files to the containers as they are, and nobody in there is
# root: so everyone may read a file, and only you may enter the folder.
mkdir -p secrets
chmod 700 secrets
umask 022

random() { od -An -v -N24 -tx1 /dev/urandom | tr -d ' \n'; }
keep() { [ -e "secrets/$1" ] || printf '%s\n' "$2" >"secrets/$1"; }

keep web-token "$(random)"
keep postgres-password "$(random)"
keep store-url "postgres://quorate:$(random)@postgres:5432/quorate"
keep shop-url "postgres://shop:$(random)@postgres:5432/shop"
