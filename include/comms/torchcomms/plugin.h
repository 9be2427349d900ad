/* Plug-in backends in C: no type of C++ or torch crosses, so that one library serves every version
 * of both.
 *
 * A plug-in is a library with the function
 *
 *     const torchcomms_plugin* torchcomms_plugin_<name>(uint32_t host_version);
 *
 * whose path is in TORCHCOMMS_BACKEND_LIB_PATH_<NAME>. Structures begin with their size as their
 * writer knows them: a reader uses the fields that fit and takes the rest for zero. Fields are only
 * ever added at the end. `host_version` is the host's TORCHCOMMS_PLUGIN_VERSION; a plug-in that
 * cannot serve it returns NULL.
 */
#ifndef COMMS_TORCHCOMMS_PLUGIN_H
#define COMMS_TORCHCOMMS_PLUGIN_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TORCHCOMMS_PLUGIN_VERSION 1

/* Results of functions. */
enum { TORCHCOMMS_OK = 0, TORCHCOMMS_PENDING = 1, TORCHCOMMS_FAILED = -1 };

typedef enum torchcomms_kind {
  TORCHCOMMS_BARRIER = 0,
  TORCHCOMMS_BROADCAST,      /* 1 output, read at the root */
  TORCHCOMMS_ALL_REDUCE,     /* 1 input = output */
  TORCHCOMMS_REDUCE,         /* 1 input; 1 output at the root, the same memory */
  TORCHCOMMS_ALL_GATHER,     /* 1 input, an output for each rank */
  TORCHCOMMS_REDUCE_SCATTER, /* an input for each rank, 1 output */
  TORCHCOMMS_ALL_TO_ALL,     /* an input and an output for each rank */
  TORCHCOMMS_SCATTER,        /* at the root an input for each rank, 1 output */
  TORCHCOMMS_GATHER,         /* 1 input, at the root an output for each rank */
  TORCHCOMMS_SEND,           /* 1 input; root is the peer */
  TORCHCOMMS_RECV            /* 1 output; root is the peer */
} torchcomms_kind;

typedef enum torchcomms_reduce_op {
  TORCHCOMMS_SUM = 0,
  TORCHCOMMS_PRODUCT,
  TORCHCOMMS_MIN,
  TORCHCOMMS_MAX,
  TORCHCOMMS_BAND,
  TORCHCOMMS_BOR,
  TORCHCOMMS_BXOR,
  TORCHCOMMS_PREMUL_SUM, /* by `factor` */
  TORCHCOMMS_AVG
} torchcomms_reduce_op;

/* Dense memory. Data type and device as in DLPack: DLDataType with one lane, DLDevice. */
typedef struct torchcomms_buffer {
  void* data;
  uint64_t bytes;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int32_t device_type;
  int32_t device_id;
} torchcomms_buffer;

/* One operation. Buffers of a list may differ in size. What it points to lives until the call
 * returns, the memory of the buffers until the operation is released. */
typedef struct torchcomms_call {
  uint32_t size;
  uint32_t kind;      /* torchcomms_kind */
  uint32_t reduce_op; /* torchcomms_reduce_op */
  int32_t root;
  int32_t tag;
  uint32_t input_count;
  uint32_t output_count;
  uint32_t blocking; /* the host waits for the end at once */
  const torchcomms_buffer* inputs;
  const torchcomms_buffer* outputs;
  double factor;
  void* stream;        /* of the device, which the operation is ordered behind; NULL on a CPU */
  int64_t deadline_ns; /* CLOCK_MONOTONIC */
} torchcomms_call;

/* The store through which ranks find each other. Keys are strings, values bytes. */
typedef struct torchcomms_store {
  uint32_t size;
  void* context;
  /* TORCHCOMMS_OK or TORCHCOMMS_FAILED. */
  int (*set)(void* context, const char* key, const void* value, uint64_t bytes);
  /* Waits for the key; the number of bytes, of which at most `capacity` are written; -1 when it
   * does not come by the deadline. */
  int64_t (*get)(void* context, const char* key, void* value, uint64_t capacity,
                 int64_t deadline_ns);
} torchcomms_store;

typedef struct torchcomms_comm_options {
  uint32_t size;
  int32_t rank;
  int32_t world_size;
  int32_t device_type;
  int32_t device_id;
  const char* name;
  const torchcomms_store* store; /* lives as long as the communicator; NULL for one rank */
  int64_t timeout_ns;
  uint32_t hint_count;
  const char* const* hints; /* key, value, key, value, ... */
} torchcomms_comm_options;

typedef struct torchcomms_comm torchcomms_comm;
typedef struct torchcomms_operation torchcomms_operation;

/* Errors are written as text, of at most `error_bytes` with the final zero. */
typedef struct torchcomms_plugin {
  uint32_t size;
  uint32_t version; /* TORCHCOMMS_PLUGIN_VERSION as the plug-in was compiled */
  const char* name;
  const char* plugin_version;
  /* Collective over the ranks. NULL on failure. */
  torchcomms_comm* (*create)(const torchcomms_comm_options* options, char* error,
                             size_t error_bytes);
  /* Waits for what was started, then leaves. */
  void (*destroy)(torchcomms_comm* comm);
  /* Never blocks, unless call->blocking. NULL on failure. */
  torchcomms_operation* (*start)(torchcomms_comm* comm, const torchcomms_call* call, char* error,
                                 size_t error_bytes);
  /* Any thread: TORCHCOMMS_PENDING until the operation has ended, then OK or FAILED. */
  int (*test)(torchcomms_operation* operation);
  /* As test, but waits until the deadline (CLOCK_MONOTONIC) for the end. */
  int (*wait)(torchcomms_operation* operation, int64_t deadline_ns);
  /* Asks for the end of the operation, with failure unless it ends well first. May be NULL. */
  void (*cancel)(torchcomms_operation* operation);
  /* Of one that has failed; lives as long as the operation. */
  const char* (*error)(torchcomms_operation* operation);
  /* Once, after the end; also when the communicator is gone. */
  void (*release)(torchcomms_operation* operation);
} torchcomms_plugin;

#ifdef __cplusplus
}
#endif

#endif /* COMMS_TORCHCOMMS_PLUGIN_H */
