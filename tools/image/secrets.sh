# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# How this machine reaches package registries, as files for the secrets of the Dockerfile. They are mounted while a
# command runs, and never enter a layer.

debian_mirror() { # label: the address from which this machine has its own packages
  apt-get indextargets --format '$(REPO_URI)' 'Created-By: Packages' 'Origin: Debian' "Label: $1" 2> /dev/null | head -1
}

apt_secret() {
  local label suites mirror first=yes
  while read -r label suites; do
    mirror=$(debian_mirror "$label") || true
    if [ -z "$mirror" ]; then
      [ -z "$first" ] || { echo "image: no Debian mirror in /etc/apt: name one there" >&2; return 1; }
      continue
    fi
    first=
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$mirror" "$suites"
    printf 'Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n\n'
  done << 'END'
Debian trixie trixie-updates
Debian-Security trixie-security
END
}

pip_secret() { # the settings that say where packages come from; the environment wins over files, as for pip itself
  local python=python3 setting variable value
  echo "[global]"
  for setting in index-url extra-index-url trusted-host proxy timeout retries; do
    variable=PIP_$(tr a-z- A-Z_ <<< "$setting")
    value=${!variable:-}
    [ -n "$value" ] || value=$($python - "$setting" << 'END'
import configparser, os, sys

files = [os.environ.get("PIP_CONFIG_FILE"), "/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"]
config = configparser.RawConfigParser()
config.read([os.path.expanduser(file) for file in files if file])
print(config.get("global", sys.argv[1], fallback=""))
END
    )
    [ -z "$value" ] || printf '%s = %s\n' "$setting" "${value//$'\n'/ }"
  done
}

write_secrets() { # folder: apt, ca, pip, and cargo where this machine has a configuration
  local file
  apt_secret > "$1/apt"
  pip_secret > "$1/pip"
  cp -L "${SSL_CERT_FILE:-/etc/ssl/certs/ca-certificates.crt}" "$1/ca"
  for file in "${CARGO_HOME:-$HOME/.cargo}"/config{.toml,}; do
    if [ -e "$file" ]; then cp "$file" "$1/cargo"; break; fi
  done
}
