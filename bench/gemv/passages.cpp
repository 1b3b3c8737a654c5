// SPDX-License-Identifier: Apache-2.0
// Measures the search in an index of passages in turns with a plain read of the same bytes. `bench_passages [PASSAGES]
// [WIDTH] [ROUNDS] [THREADS]`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "bench/gemv/plain_read.h"
#include "worker/layers/search/passage_search.h"

int main(int argc, char** argv) {
  const int64_t passages = argc > 1 ? std::atoll(argv[1]) : 1'000'000, width = argc > 2 ? std::atoll(argv[2]) : 768;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 7, threads = argc > 4 ? std::atoi(argv[4]) : 2;
  constexpr int64_t found = 5;
  at::set_num_threads(threads);
  std::printf("%ld passages of width %ld, the best %ld, %d thread%s, best of %d rounds\n", static_cast<long>(passages),
              static_cast<long>(width), static_cast<long>(found), threads, threads > 1 ? "s" : "", rounds);
  std::printf("%-8s %10s %10s %10s %16s\n", "type", "questions", "read, ms", "search, ms", "search / read");
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf, at::kFloat}) {
    const at::Tensor table = at::empty({passages, width}, type);
    for (int64_t begin = 0; begin < passages; begin += 1 << 16) {
      const int64_t rows = std::min<int64_t>(1 << 16, passages - begin);
      table.narrow(0, begin, rows).copy_(at::randn({rows, width}));
    }
    const std::vector<pm::layers::PassageRows> rows{{table, 0}};
    for (const int64_t questions : {1, 4}) {
      const at::Tensor vectors = at::randn({questions, width});
      double read = 1e9, search = 1e9;
      for (int round = 0; round < rounds; ++round) {
        double start = pm::bench::now(false);
        pm::bench::read_all(table);
        read = std::min(read, pm::bench::now(false) - start);
        start = pm::bench::now(false);
        const auto best = pm::layers::search_passages(vectors, rows, found);
        search = std::min(search, pm::bench::now(false) - start);
        if (best.size() != static_cast<size_t>(questions) || best[0].size() != static_cast<size_t>(found)) return 1;
      }
      std::printf("%-8s %10ld %10.1f %10.1f %16.2f\n", c10::toString(type), static_cast<long>(questions), 1e3 * read,
                  1e3 * search, search / read);
    }
  }
}
