#pragma once

#include <cstddef>
#include <cstdint>

namespace ctran {

/// What all_to_all_v_dynamic and all_to_all_v_combine move: rows of Collective::count elements. The
/// numbers stand in the caller's memory. They are read and checked once, when the operation starts;
/// that is after everything that was posted before it, which may therefore still write them.
///
/// all_to_all_v_dynamic: a rank sends to each rank the rows that it lists for it. It receives rows
/// in the order of the senders, into one buffer or one per sender. Only the senders know how many.
///
/// all_to_all_v_combine is the way back. The rows that a rank holds (`input`) came in the order of
/// the senders, `received` from each, and return to them. A row of the output becomes the sum of
/// all rows that return for it, each times its weight; zeros if none does.
struct RowExchange {
  size_t inputRows = 0;  ///< rows at Collective::input
  /// Rows at Collective::output, unless Collective::outputs has one per sender.
  size_t outputRows = 0;

  /// [size] number of rows, or chunks, listed for each rank.
  const int64_t* sendCounts = nullptr;
  /// The rows or chunks that are sent, rank after rank; null: all of them, in order.
  const int64_t* sendIndices = nullptr;
  size_t indices = 0;  ///< how many indices there is room for

  /// For all_to_all_v_dynamic: [chunks] the rows of the input in each chunk, if chunks are listed.
  /// All ranks have as many chunks.
  const int64_t* chunkRows = nullptr;
  size_t chunks = 0;

  /// [size] number of rows from each rank: written by all_to_all_v_dynamic if not null, read by
  /// combine.
  int64_t* received = nullptr;
  /// [size] what `received` has to be, if not null.
  const int64_t* expected = nullptr;
  /// [size][chunks] rows of each chunk from each rank, if not null; 0 for a chunk that did not
  /// come.
  int64_t* receivedChunks = nullptr;

  /// For combine: [inputRows] the weights, or null for a plain sum.
  const float* weights = nullptr;

  /// A row that several ranks of one host need crosses to that host once. Combine always does so.
  bool dedup = false;
};

}  // namespace ctran
