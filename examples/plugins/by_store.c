/* A backend in C, whose ranks exchange everything through the store: slow, and complete enough to
 * show every function of comms/torchcomms/plugin.h. It needs neither torch nor C++:
 *
 *     cc -shared -fPIC -I <torchcomms>/include by_store.c -o libby_store.so -lpthread
 *     export TORCHCOMMS_BACKEND_LIB_PATH_BY_STORE=$PWD/libby_store.so
 *
 * and new_comm("by_store", ...). It knows barrier, broadcast, all_gather, send, recv, and
 * all_reduce of sums of float32.
 */
#define _GNU_SOURCE
#include <comms/torchcomms/plugin.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct torchcomms_comm {
  torchcomms_store store;
  char name[256];
  int rank, size;
  long collectives;
  long* sent;     /* to each rank */
  long* received; /* from each rank */
};

struct torchcomms_operation {
  torchcomms_comm* comm;
  torchcomms_call call;
  torchcomms_buffer* outputs;
  torchcomms_buffer* inputs;
  long number;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t ended_condition;
  int result; /* guarded by mutex, as the rest */
  int cancelled;
  char error[256];
};

static int64_t now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int is_cancelled(torchcomms_operation* op) {
  pthread_mutex_lock(&op->mutex);
  const int cancelled = op->cancelled;
  pthread_mutex_unlock(&op->mutex);
  return cancelled;
}

/* NULL, or what went wrong. */
static const char* put(torchcomms_operation* op, const char* key, torchcomms_buffer from) {
  const torchcomms_store* store = &op->comm->store;
  const int result = store->set(store->context, key, from.data, from.bytes);
  return result == TORCHCOMMS_OK ? NULL : "the store took no value";
}

static const char* get(torchcomms_operation* op, const char* key, void* to, uint64_t bytes) {
  const torchcomms_store* store = &op->comm->store;
  while (1) {
    int64_t slice = now_ns() + 50000000;
    if (slice > op->call.deadline_ns) slice = op->call.deadline_ns;
    const int64_t found = store->get(store->context, key, to, bytes, slice);
    if (found >= 0) return (uint64_t)found == bytes ? NULL : "the sizes of two ranks differ";
    if (is_cancelled(op)) return "cancelled";
    if (now_ns() >= op->call.deadline_ns) return "the deadline has passed";
  }
}

static const char* gather(torchcomms_operation* op, torchcomms_buffer own,
                          const torchcomms_buffer* all) {
  char key[512];
  for (int i = 0; i < op->comm->size; ++i) {
    const int r = (op->comm->rank + i) % op->comm->size;
    snprintf(key, sizeof key, "%s/%ld/%d", op->comm->name, op->number, r);
    const char* error = i == 0 ? put(op, key, own) : NULL;
    if (error == NULL) error = get(op, key, all[r].data, all[r].bytes);
    if (error != NULL) return error;
  }
  return NULL;
}

static const char* all_reduce(torchcomms_operation* op) {
  const torchcomms_buffer own = op->outputs[0];
  if (own.type_code != 2 || own.type_bits != 32 || op->call.reduce_op != TORCHCOMMS_SUM) {
    return "only sums of float32 are known";
  }
  const int size = op->comm->size;
  char* memory = malloc(size * own.bytes + 1);
  torchcomms_buffer* all = calloc(size, sizeof *all);
  const char* error = memory && all ? NULL : "no memory";
  if (error == NULL) {
    for (int r = 0; r < size; ++r) {
      all[r] = own;
      all[r].data = memory + r * own.bytes;
    }
    error = gather(op, own, all);
  }
  if (error == NULL) {
    float* sum = own.data;
    for (uint64_t i = 0; i < own.bytes / sizeof *sum; ++i) {
      sum[i] = 0;
      for (int r = 0; r < size; ++r) sum[i] += ((float*)all[r].data)[i];
    }
  }
  free(memory);
  free(all);
  return error;
}

static const char* barrier(torchcomms_operation* op) {
  char memory[1] = {0};
  torchcomms_buffer byte = {.data = memory, .bytes = 1};
  torchcomms_buffer* all = calloc(op->comm->size, sizeof *all);
  if (all == NULL) return "no memory";
  for (int r = 0; r < op->comm->size; ++r) all[r] = byte;
  const char* error = gather(op, byte, all);
  free(all);
  return error;
}

static const char* execute(torchcomms_operation* op) {
  char key[512];
  const int rank = op->comm->rank, root = op->call.root;
  switch (op->call.kind) {
    case TORCHCOMMS_BARRIER:
      return barrier(op);
    case TORCHCOMMS_BROADCAST:
      snprintf(key, sizeof key, "%s/%ld", op->comm->name, op->number);
      return rank == root ? put(op, key, op->outputs[0])
                          : get(op, key, op->outputs[0].data, op->outputs[0].bytes);
    case TORCHCOMMS_ALL_REDUCE:
      return all_reduce(op);
    case TORCHCOMMS_ALL_GATHER:
      return gather(op, op->inputs[0], op->outputs);
    case TORCHCOMMS_SEND:
      snprintf(key, sizeof key, "%s/%d-%d/%ld", op->comm->name, rank, root, op->number);
      return put(op, key, op->inputs[0]);
    case TORCHCOMMS_RECV:
      snprintf(key, sizeof key, "%s/%d-%d/%ld", op->comm->name, root, rank, op->number);
      return get(op, key, op->outputs[0].data, op->outputs[0].bytes);
    default:
      return "by_store does not know this operation";
  }
}

static void* run(void* argument) {
  torchcomms_operation* op = argument;
  const char* error = execute(op);
  pthread_mutex_lock(&op->mutex);
  op->result = error == NULL ? TORCHCOMMS_OK : TORCHCOMMS_FAILED;
  if (error != NULL) snprintf(op->error, sizeof op->error, "%s", error);
  pthread_cond_broadcast(&op->ended_condition);
  pthread_mutex_unlock(&op->mutex);
  return NULL;
}

static torchcomms_comm* create(const torchcomms_comm_options* options, char* error, size_t bytes) {
  if (options->store == NULL) { /* as of one rank, if new_comm is given none */
    snprintf(error, bytes, "by_store needs a store");
    return NULL;
  }
  torchcomms_comm* comm = calloc(1, sizeof *comm);
  if (comm == NULL) return NULL;
  comm->store = *options->store;
  snprintf(comm->name, sizeof comm->name, "%s", options->name);
  comm->rank = options->rank;
  comm->size = options->world_size;
  comm->sent = calloc(comm->size, sizeof *comm->sent);
  comm->received = calloc(comm->size, sizeof *comm->received);
  return comm;
}

static void destroy(torchcomms_comm* comm) {
  free(comm->sent);
  free(comm->received);
  free(comm);
}

static torchcomms_buffer* copied(const torchcomms_buffer* buffers, uint32_t count) {
  torchcomms_buffer* copy = calloc(count + 1, sizeof *copy);
  if (copy != NULL && count > 0) memcpy(copy, buffers, count * sizeof *copy);
  return copy;
}

static torchcomms_operation* start(torchcomms_comm* comm, const torchcomms_call* call, char* error,
                                   size_t bytes) {
  torchcomms_operation* op = calloc(1, sizeof *op);
  if (op == NULL) return NULL;
  op->comm = comm;
  memcpy(&op->call, call, call->size < sizeof op->call ? call->size : sizeof op->call);
  op->inputs = copied(call->inputs, call->input_count);
  op->outputs = copied(call->outputs, call->output_count);
  op->result = TORCHCOMMS_PENDING;
  if (call->kind == TORCHCOMMS_SEND) {
    op->number = comm->sent[call->root]++;
  } else if (call->kind == TORCHCOMMS_RECV) {
    op->number = comm->received[call->root]++;
  } else {
    op->number = comm->collectives++;
  }
  pthread_mutex_init(&op->mutex, NULL);
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&op->ended_condition, &attributes);
  pthread_condattr_destroy(&attributes);
  if (pthread_create(&op->thread, NULL, run, op) != 0) {
    snprintf(error, bytes, "no thread: %s", strerror(errno));
    free(op->inputs);
    free(op->outputs);
    free(op);
    return NULL;
  }
  return op;
}

static int wait_until(torchcomms_operation* op, int64_t deadline) {
  const struct timespec until = {deadline / 1000000000LL, deadline % 1000000000LL};
  pthread_mutex_lock(&op->mutex);
  while (op->result == TORCHCOMMS_PENDING &&
         pthread_cond_timedwait(&op->ended_condition, &op->mutex, &until) != ETIMEDOUT) {
  }
  const int result = op->result;
  pthread_mutex_unlock(&op->mutex);
  return result;
}

static int test(torchcomms_operation* op) {
  pthread_mutex_lock(&op->mutex);
  const int result = op->result;
  pthread_mutex_unlock(&op->mutex);
  return result;
}

static void cancel(torchcomms_operation* op) {
  pthread_mutex_lock(&op->mutex);
  op->cancelled = 1;
  pthread_mutex_unlock(&op->mutex);
}

static const char* error_of(torchcomms_operation* op) { return op->error; }

static void release(torchcomms_operation* op) {
  pthread_join(op->thread, NULL);
  pthread_mutex_destroy(&op->mutex);
  pthread_cond_destroy(&op->ended_condition);
  free(op->inputs);
  free(op->outputs);
  free(op);
}

const torchcomms_plugin* torchcomms_plugin_by_store(uint32_t host_version) {
  static const torchcomms_plugin plugin = {
      .size = sizeof plugin,
      .version = TORCHCOMMS_PLUGIN_VERSION,
      .name = "by_store",
      .plugin_version = "1.0",
      .create = create,
      .destroy = destroy,
      .start = start,
      .test = test,
      .wait = wait_until,
      .cancel = cancel,
      .error = error_of,
      .release = release,
  };
  return host_version >= 1 ? &plugin : NULL;
}
