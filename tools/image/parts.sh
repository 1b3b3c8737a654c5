# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
# The parts of an image, as functions: the stages of the Dockerfile and tests/cluster/image.sh make their images of
# them, so that both hold the same files. Every library keeps the path at which the dynamic linker finds it by default;
# those of LibTorch and CUDA join libc there, so that no image needs LD_LIBRARY_PATH.
# shellcheck disable=SC2034  # tests/cluster/image.sh reads it too.
user=65532
repository=$(readlink -f "$(dirname "${BASH_SOURCE[0]}")/../..")

libraries() { # program...: the files they load, one per line
  local program answer
  for program; do
    answer=$(ldd "$program" 2>&1) || {
      [[ $answer == *"not a dynamic executable"* ]] && continue
      echo "ldd $program: $answer" >&2; return 1; }
    if grep "not found" <<< "$answer" >&2; then
      echo "$program needs a library that is not on this machine" >&2; return 1
    fi
    grep -o '/[^ ]*' <<< "$answer"
  done | sort -u
}

loaded_by_name() { # program of a CUDA build: what its libraries load without being linked with it
  local wheels
  wheels=$(dirname "$(ldd "$1" | grep -o '/[^ ]*/libtorch_cuda\.so')")/../../nvidia
  printf '%s\n' "$wheels"/cudnn/lib/*.so.* "$wheels"/cu13/lib/libnvrtc*.so.*
}

is_torch() { [[ $1 == */torch/lib/* || $1 == */nvidia/* ]]; }

system_part() { # folder; libraries on the input: those of Debian, and the files of /etc that programs look for
  local library
  while read -r library; do
    if [ -z "$library" ] || is_torch "$library"; then continue; fi
    install -D -m 755 "$library" "$1$library"
    debian_package "$1" "$library"
  done
  mkdir -p "$1/etc/ssl/certs"
  # The authorities of the package, not those that somebody has added to this machine.
  find /usr/share/ca-certificates/mozilla -name '*.crt' | sort | xargs cat > "$1/etc/ssl/certs/ca-certificates.crt"
  printf 'root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:%s:%s:nonroot:/tmp:/sbin/nologin\n' $user $user \
    > "$1/etc/passwd"
  printf 'root:x:0:\nnonroot:x:%s:\n' $user > "$1/etc/group"
  echo "hosts: files dns" > "$1/etc/nsswitch.conf"
  install -d -m 1777 "$1/tmp"
}

debian_package() { # folder, library: records the package that has the library
  local real package
  real=$(readlink -f "$2")
  package=$(dpkg-query -S "$real" "${real#/usr}" 2> /dev/null | head -1 | cut -d: -f1) || true
  # A library that somebody built is for images of that machine only; tests/image refuses it in those of the Dockerfile.
  [ -n "$package" ] || { echo "no Debian package has $real: the image names no licence of it" >&2; return 0; }
  package_record "$1" "$package"
}

package_record() { # folder, package of Debian: its licence, and its record where scanners of images look for it
  install -D -m 644 "/usr/share/doc/$2/copyright" "$1/usr/share/doc/$2/copyright"
  mkdir -p "$1/var/lib/dpkg/status.d"
  dpkg-query -s "$2" > "$1/var/lib/dpkg/status.d/$2"
}

headers_part() { # folder: records the libraries that consist of headers, which are parts of the program
  local package
  for package in nlohmann-json3-dev libcli11-dev libcpp-httplib-dev; do
    # tools/httplib.sh takes cpp-httplib from elsewhere where Debian's is too old.
    if dpkg-query -s "$package" > /dev/null 2>&1; then package_record "$1" "$package"; fi
  done
}

libtorch_only() { # libraries on the input: those of LibTorch and CUDA
  local library
  while read -r library; do if is_torch "$library"; then echo "$library"; fi; done
}

torch_folder() { # libraries on the input: the folder of libc, in which those of LibTorch shall lie
  dirname "$(grep -m 1 '/libc\.so\.6$' || echo /usr/lib/none)"
}

torch_part() { # folder, folder in the image; files on the input: stripped of symbols that nobody resolves at run time
  local library
  while read -r library; do
    install -D -m 755 "$library" "$1$2/$(basename "$library")"
    strip --strip-unneeded "$1$2/$(basename "$library")"
  done
}

program_part() { # folder program...
  local out=$1 program; shift
  for program; do
    install -D -m 755 "$(readlink -f "$program")" "$out/usr/bin/$(basename "$program")"
    # A script stays as it is.
    strip --strip-unneeded "$out/usr/bin/$(basename "$program")" 2> /dev/null || true
  done
}

notices_part() { # folder
  install -d -m 755 "$1/usr/share/doc/parallelmodel"
  install -m 644 "$repository/LICENSE" "$repository/THIRD_PARTY_NOTICES.md" "$1/usr/share/doc/parallelmodel/"
}
