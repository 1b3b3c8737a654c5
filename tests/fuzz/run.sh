#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the fuzz targets and runs each from its seeds: run.sh [RUNS] [SECONDS]. Without arguments it does the short
# deterministic run of `make test`. `run.sh 0 600` lets each target search for ten minutes and stores new inputs in
# build/fuzz/corpus for the next run.
set -euo pipefail
cd "$(dirname "$0")/../.."
runs=${1:-25000} seconds=${2:-0} seed=${FUZZ_SEED:-1}
build=build/fuzz python=${PM_CACHE:-$HOME/.cache/parallelmodel}/venv/bin/python
cmake -G Ninja -S tests/fuzz -B $build -DCMAKE_CXX_COMPILER=clang++ > $build.log 2>&1 || { cat $build.log; exit 1; }
cmake --build $build -- -j2 >> $build.log 2>&1 || { tail -40 $build.log; exit 1; }
rm -rf $build/seeds
export PM_FUZZ_WORLDS=$build/worlds
[ "$seconds" != 0 ] || rm -rf $build/corpus
"$python" tests/fuzz/seeds.py $build/seeds

# libFuzzer counts addresses of code: the same seed gives the same run only where the program lies at the same place
place=(setarch -R); "${place[@]}" true 2> /dev/null || place=()

fuzz() { # target weight longest: the input that broke it stays in build/fuzz/found
  local target=$1 limit=(-runs=$((runs * $2 / 100)))
  [ "$seconds" = 0 ] || limit=(-max_total_time="$seconds")
  mkdir -p $build/corpus/"$target" $build/found
  local begin=$SECONDS
  if ! "${place[@]}" $build/fuzz_"$target" -seed="$seed" -reload=0 "${limit[@]}" -max_len="$3" -timeout=20 \
    -rss_limit_mb=2048 -malloc_limit_mb=512 -dict=$build/seeds/"$target".dict \
      -artifact_prefix=$build/found/"$target"- $build/corpus/"$target" $build/seeds/"$target" \
        > $build/"$target".log 2>&1; then
    tail -40 $build/"$target".log; echo "fuzz: $target FAILED (seed $seed)"; return 1
  fi
  printf 'fuzz: %-11s %s, seed %s, %d s\n' "$target" \
    "$(grep -oE 'Done [0-9]+ runs' $build/"$target".log)" "$seed" $((SECONDS - begin))
}
# two at a time; weights make the parts of a run take about the same time
fuzz header 200 400 & first=$!
fuzz torch_file 100 4000 && fuzz pickle 60 2000 & second=$!
wait $first; fuzz expression 200 200 & first=$!
wait $second; fuzz request 40 1500 & second=$!
wait $first; fuzz policy 10 8000
fuzz audio 4 8000
fuzz passages 200 500
fuzz quantized 60 1200
fuzz gguf 30 3000
fuzz adapter 10 3000
fuzz vocabulary 10 2000
fuzz constraint 4 1500
fuzz reply 5 1500
wait $second; fuzz hub 100 3000
"$python" tests/fuzz/compare_safetensors.py $build/header_verdicts "$seed" $build/corpus/header $build/seeds/header
