#pragma once

#include <stddef.h>
#include <stdint.h>

/// Algorithms in C++ for other languages. What returns an int returns a code of
/// mscclpp::CommResult, what returns a pointer returns null after an error; of both
/// mscclpp_last_error says why.

#ifdef __cplusplus
#include <functional>

extern "C" {
#define MSCCLPP_C_API __attribute__((visibility("default")))
#else
#define MSCCLPP_C_API
#endif

typedef struct mscclpp_communicator mscclpp_communicator;
typedef struct mscclpp_algorithm mscclpp_algorithm;

/// What went wrong last on this thread.
MSCCLPP_C_API const char* mscclpp_last_error(void);
/// Its kind, as a number of mscclpp::ErrorCode; 100: what mscclpp_set_interruption asks has ended
/// a wait; -1: no exception was thrown in the last call.
MSCCLPP_C_API int mscclpp_last_error_code(void);

/// Writes a unique id, as 256 hexadecimal digits and a zero. Rank 0's process calls it.
MSCCLPP_C_API int mscclpp_unique_id(char* text);

/// Collective over `size` ranks. `where` is a unique id as above, "interface:address:port",
/// "address:port", or the URL of a store ("file:///DIRECTORY", "memory://NAME"). `timeout_seconds`
/// is how long it, and each later message of another rank, is waited for.
MSCCLPP_C_API mscclpp_communicator* mscclpp_communicator_create(int rank, int size,
                                                                const char* where,
                                                                int timeout_seconds);
/// Ends what waits for other ranks, and what they wait for, now and later. Any thread.
MSCCLPP_C_API void mscclpp_communicator_abort(mscclpp_communicator* communicator,
                                              const char* reason);
MSCCLPP_C_API void mscclpp_communicator_free(mscclpp_communicator* communicator);
/// Waits on the main thread ask it about twenty times a second, and end if it returns something
/// else than 0: an interpreter looks there at its signals.
MSCCLPP_C_API void mscclpp_set_interruption(int (*is_interrupted)(void));

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

/// Has a NativeAlgorithm serve calls of communicators of torchcomms on this process's ranks: of
/// that name, or of any if it is empty. `types` that it reduces, and `reductions`, have a
/// bit for each of mscclpp::DataType and mscclpp::ReduceOp. A number to unregister it by; -1 after
/// an error.
MSCCLPP_C_API int64_t mscclpp_algorithm_register(mscclpp_algorithm* algorithm,
                                                 const char* communicator, int preferred,
                                                 uint64_t types, uint64_t reductions);
MSCCLPP_C_API int mscclpp_algorithm_unregister(int64_t number);

/// Throws, in its way, what has ended a wait in a kernel on a GPU: see Communicator::checkWaits.
MSCCLPP_C_API int mscclpp_communicator_check(const mscclpp_communicator* communicator);

/// A connection, a memory, a semaphore, a channel, or a future of one: see core.hpp and those of
/// the channels. A function that gets one of another kind fails.
typedef struct mscclpp_object mscclpp_object;
MSCCLPP_C_API void mscclpp_object_free(mscclpp_object* object);
/// What a future becomes; waits for the other rank.
MSCCLPP_C_API mscclpp_object* mscclpp_future_get(mscclpp_object* future);
/// Writes what kernels get of a channel, semaphore or FIFO, if `capacity` is enough. How many bytes
/// it has; 0 after an error.
MSCCLPP_C_API size_t mscclpp_device_handle(const mscclpp_object* object, void* to, size_t capacity);

/// Futures of connections. `transport` and `device_type` are numbers of mscclpp::Transport and
/// mscclpp::DeviceType.
MSCCLPP_C_API mscclpp_object* mscclpp_connect(mscclpp_communicator* communicator, int peer, int tag,
                                              int transport, int device_type, int device,
                                              int max_write_queue_size);
MSCCLPP_C_API int mscclpp_connection_transport(const mscclpp_object* connection, int remote);
MSCCLPP_C_API int mscclpp_connection_write(mscclpp_object* connection, const mscclpp_object* to,
                                           uint64_t to_offset, const mscclpp_object* from,
                                           uint64_t from_offset, uint64_t bytes);
MSCCLPP_C_API int mscclpp_connection_update_and_sync(mscclpp_object* connection,
                                                     const mscclpp_object* to, uint64_t to_offset,
                                                     uint64_t* source, uint64_t value);
MSCCLPP_C_API int mscclpp_connection_flush(mscclpp_object* connection, int64_t timeout_us);

MSCCLPP_C_API mscclpp_object* mscclpp_register_memory(mscclpp_communicator* communicator,
                                                      void* data, size_t bytes,
                                                      uint64_t transports);
MSCCLPP_C_API int mscclpp_send_memory(mscclpp_communicator* communicator,
                                      const mscclpp_object* memory, int peer, int tag);
MSCCLPP_C_API mscclpp_object* mscclpp_receive_memory(mscclpp_communicator* communicator, int peer,
                                                     int tag);
MSCCLPP_C_API void* mscclpp_memory_data(const mscclpp_object* memory);
MSCCLPP_C_API size_t mscclpp_memory_size(const mscclpp_object* memory);
MSCCLPP_C_API uint64_t mscclpp_memory_transports(const mscclpp_object* memory);

/// A future of a semaphore, and what is made of one.
MSCCLPP_C_API mscclpp_object* mscclpp_build_semaphore(mscclpp_communicator* communicator,
                                                      const mscclpp_object* connection, int peer,
                                                      int tag);
MSCCLPP_C_API mscclpp_object* mscclpp_host_to_device_semaphore(const mscclpp_object* semaphore);
MSCCLPP_C_API mscclpp_object* mscclpp_host_to_host_semaphore(const mscclpp_object* semaphore);
MSCCLPP_C_API mscclpp_object* mscclpp_device_to_device_semaphore(const mscclpp_object* semaphore);
MSCCLPP_C_API int mscclpp_semaphore_signal(mscclpp_object* semaphore);
/// Of hosts: 1 if there was a signal, 0 if not, -1 after an error.
MSCCLPP_C_API int mscclpp_semaphore_poll(mscclpp_object* semaphore);
MSCCLPP_C_API int mscclpp_semaphore_wait(mscclpp_object* semaphore, int64_t max_spins);

/// Without memories it is a channel of signals alone.
MSCCLPP_C_API mscclpp_object* mscclpp_memory_channel(const mscclpp_object* semaphore,
                                                     const mscclpp_object* to,
                                                     const mscclpp_object* from, void* packets);

MSCCLPP_C_API mscclpp_object* mscclpp_proxy_service(int fifo_size, int device_type);
/// The number of the semaphore, or of the memory; -1 after an error.
MSCCLPP_C_API int64_t mscclpp_proxy_add(mscclpp_object* service, const mscclpp_object* object);
MSCCLPP_C_API int mscclpp_proxy_start(mscclpp_object* service, int blocking);
MSCCLPP_C_API int mscclpp_proxy_stop(mscclpp_object* service);
/// With negative numbers of memories it is a channel whose requests say them.
MSCCLPP_C_API mscclpp_object* mscclpp_port_channel(mscclpp_object* service, uint32_t semaphore,
                                                   int64_t to, int64_t from);

MSCCLPP_C_API mscclpp_object* mscclpp_fifo(int size, int device_type);
MSCCLPP_C_API int mscclpp_fifo_poll(mscclpp_object* fifo, uint64_t words[4]);
MSCCLPP_C_API int mscclpp_fifo_pop(mscclpp_object* fifo);

/// Of those ranks; a switch channel of it, of which `data` is this rank's part.
MSCCLPP_C_API mscclpp_object* mscclpp_connect_nvls(mscclpp_communicator* communicator,
                                                   const int* ranks, size_t count, size_t bytes);
MSCCLPP_C_API mscclpp_object* mscclpp_bind_memory(mscclpp_object* connection, void* data,
                                                  size_t bytes);

#ifdef __cplusplus
}

namespace mscclpp::detail {

/// The code of what `body` throws, and what mscclpp_last_error says of it; 0 if it does not throw.
__attribute__((visibility("default"))) int guarded(const std::function<void()>& body);

}  // namespace mscclpp::detail
#endif
