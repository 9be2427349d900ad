#pragma once

#include <cstddef>
#include <cstdint>

namespace ctran {

/// What all_to_all_v_dynamic and all_to_all_v_combine move: rows of Collective::count elements. The
/// numbers stand in memory of the caller's that is read when the operation starts, after all that
/// was posted before it, and may be written by that. They are checked then, once and for all.
///
/// all_to_all_v_dynamic: a rank sends each rank the rows that it lists for it, and receives what it
/// is sent in the order of the senders, into one buffer or one per sender. How much that is, only
/// the senders know.
///
/// all_to_all_v_combine: the way back. What a rank holds (`input`) came in the order of the
/// senders, `received` rows from each; it returns to them. A row of the output becomes the sum of
/// all rows that return for it, each times its weight; zeros if none does.
struct RowExchange {
  size_t inputRows = 0;   ///< at Collective::input
  size_t outputRows = 0;  ///< at Collective::output, unless Collective::outputs has one per sender

  /// [size] rows, or chunks, listed for each rank.
  const int64_t* sendCounts = nullptr;
  /// Which, rank after rank; null: all of them, in order.
  const int64_t* sendIndices = nullptr;
  size_t indices = 0;  ///< how many there is room for

  /// Of all_to_all_v_dynamic: [chunks] how many rows of the input each chunk has, if chunks are
  /// listed. All ranks have as many chunks.
  const int64_t* chunkRows = nullptr;
  size_t chunks = 0;

  /// [size] rows from each rank: written by all_to_all_v_dynamic if not null, read by combine.
  int64_t* received = nullptr;
  /// [size] what they have to be, if not null.
  const int64_t* expected = nullptr;
  /// [size][chunks] rows of each chunk from each rank, if not null; 0 for one that did not come.
  int64_t* receivedChunks = nullptr;

  /// Of combine: [inputRows], or null for a plain sum.
  const float* weights = nullptr;

  /// A row that several ranks of one host need crosses to that host once. Of combine: always.
  bool dedup = false;
};

}  // namespace ctran
