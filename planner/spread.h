// How weights that come together when they are used (Sharded, Offload) are spread over ranks. Planner and loader count alike, byte for byte, from facts alone.
#pragma once
#include <string>
#include <vector>

#include "planner/cuts.h"
#include "planner/facts.h"

namespace pm {

/// What all cut parameters of a layer make when they lie after each other: one run of bytes, of which each of n ranks keeps a part (FSDP's flat parameter).
struct Run {
  std::string stack;
  int layer = 0;                 ///< the first that reads it
  int64_t bytes = 0;
  int layers = 1;                ///< how many read it (ALBERT)
};

/// A table of tokens, positions or scores, of which each rank keeps some rows.
struct SpreadTable {
  std::string stack;             ///< "" for heads of the model
  int64_t rows = 0, row_bytes = 0;
  bool scored = false;           ///< all of it is multiplied; else rows are only looked up
};

/// A model whose weights are gathered. Every rank keeps whole what no axis cuts (norms, biases after a sum, projections of embeddings), and what several layers
/// share beside parameters of their own (T5's bucket biases).
struct Spread {
  int64_t whole = 0;             ///< bytes that every rank keeps
  std::vector<Run> runs;
  std::vector<SpreadTable> tables;
  /// Bytes of runs and tables that rank `rank` of n keeps; all ranks' are all bytes.
  int64_t kept(int rank, int n) const;
  int64_t largest_run() const;
  /// Bytes of the widest row that a tile has to hold.
  int64_t widest_row = 0;
};
Spread spread(const Facts&, DType precision);

/// The part of a run of `bytes` that `rank` of n keeps: parts begin at multiples of 64 bytes and differ by at most 128.
Range part_of_run(int64_t bytes, int rank, int n);
/// The rows of a table that `rank` of n keeps; they differ by at most one.
Range part_of_table(int64_t rows, int rank, int n);

}  // namespace pm
