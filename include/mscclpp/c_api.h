#pragma once

#include <stddef.h>
#include <stdint.h>

/// Algorithms in C++ for other languages. What returns an int returns a code of
/// mscclpp::CommResult, what returns a pointer returns null after an error; of both
/// mscclpp_last_error says why.

#ifdef __cplusplus
extern "C" {
#define MSCCLPP_C_API __attribute__((visibility("default")))
#else
#define MSCCLPP_C_API
#endif

typedef struct mscclpp_communicator mscclpp_communicator;
typedef struct mscclpp_algorithm mscclpp_algorithm;

/// What went wrong last on this thread.
MSCCLPP_C_API const char* mscclpp_last_error(void);
/// Its kind, as a number of mscclpp::ErrorCode; -1: no exception was thrown in the last call.
MSCCLPP_C_API int mscclpp_last_error_code(void);

/// Writes a unique id, as 256 hexadecimal digits and a zero. Rank 0's process calls it.
MSCCLPP_C_API int mscclpp_unique_id(char* text);

/// Collective over `size` ranks. `where` is a unique id as above, "interface:address:port",
/// "address:port", or the URL of a store ("file:///DIRECTORY", "memory://NAME").
MSCCLPP_C_API mscclpp_communicator* mscclpp_communicator_create(int rank, int size,
                                                                const char* where,
                                                                int timeout_seconds);
MSCCLPP_C_API void mscclpp_communicator_free(mscclpp_communicator* communicator);

/// Of what a capsule named "mscclpp::AlgorithmPtr" holds, a std::shared_ptr<mscclpp::Algorithm>*.
MSCCLPP_C_API mscclpp_algorithm* mscclpp_algorithm_share(void* shared_ptr);
MSCCLPP_C_API void mscclpp_algorithm_free(mscclpp_algorithm* algorithm);

MSCCLPP_C_API const char* mscclpp_algorithm_name(const mscclpp_algorithm* algorithm);
MSCCLPP_C_API const char* mscclpp_algorithm_collective(const mscclpp_algorithm* algorithm);
/// 0: any, 1: in place, 2: out of place.
MSCCLPP_C_API int mscclpp_algorithm_buffer_mode(const mscclpp_algorithm* algorithm);
/// Both 0: for any.
MSCCLPP_C_API void mscclpp_algorithm_constraint(const mscclpp_algorithm* algorithm, int* world_size,
                                                int* ranks_per_node);
/// Tag number `index`; null behind the last.
MSCCLPP_C_API const char* mscclpp_algorithm_tag(const mscclpp_algorithm* algorithm, size_t index,
                                                uint64_t* value);
MSCCLPP_C_API void mscclpp_algorithm_range(const mscclpp_algorithm* algorithm, size_t* least,
                                           size_t* most);
MSCCLPP_C_API int mscclpp_algorithm_set_range(mscclpp_algorithm* algorithm, size_t least,
                                              size_t most);

/// mscclpp::Algorithm::execute. Types and reductions are numbers of mscclpp::DataType and
/// mscclpp::ReduceOp. `names` and `values` are the extras.
MSCCLPP_C_API int mscclpp_algorithm_execute(mscclpp_algorithm* algorithm,
                                            mscclpp_communicator* communicator, const void* input,
                                            void* output, size_t input_size, size_t output_size,
                                            int dtype, int op, void* stream, int blocks,
                                            int threads_per_block, int symmetric_memory,
                                            size_t extras, const char* const* names,
                                            const uint64_t* values, int accum_dtype);
MSCCLPP_C_API int mscclpp_algorithm_reset(mscclpp_algorithm* algorithm);

#ifdef __cplusplus
}
#endif
