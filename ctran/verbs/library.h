#pragma once

#include "ctran/verbs/abi.h"
#include "ctran/verbs/expected.h"

/// libibverbs.so.1 as one table of typed function pointers, found with dlopen when it is first
/// asked for.
///
/// With IBVERBX_BUILD_RDMA_CORE the program links the library instead. The table is then a constant
/// of which compilers know the functions, so that calls through it are direct.
namespace ibverbx {

struct ibv_compat_port_attr;  ///< ibv_port_attr up to `flags`: what ibv_query_port fills

// X(member, symbol version, type of the result, parameters...): the symbol is ibv_<member>.
#define CTRAN_VERBS_FUNCTIONS(X)                                                                \
  X(get_device_list, "IBVERBS_1.1", ibv_device**, int* count)                                   \
  X(free_device_list, "IBVERBS_1.1", void, ibv_device** list)                                   \
  X(get_device_guid, "IBVERBS_1.1", uint64_t, ibv_device* device)                               \
  X(open_device, "IBVERBS_1.1", ibv_context*, ibv_device* device)                               \
  X(close_device, "IBVERBS_1.1", int, ibv_context* context)                                     \
  X(query_device, "IBVERBS_1.1", int, ibv_context* context, ibv_device_attr* attributes)        \
  X(query_port, "IBVERBS_1.1", int, ibv_context* context, uint8_t port,                         \
    ibv_compat_port_attr* attributes)                                                           \
  X(query_gid, "IBVERBS_1.1", int, ibv_context* context, uint8_t port, int index, ibv_gid* gid) \
  X(get_async_event, "IBVERBS_1.1", int, ibv_context* context, ibv_async_event* event)          \
  X(ack_async_event, "IBVERBS_1.1", void, ibv_async_event* event)                               \
  X(event_type_str, "IBVERBS_1.1", const char*, ibv_event_type type)                            \
  X(wc_status_str, "IBVERBS_1.1", const char*, ibv_wc_status status)                            \
  X(alloc_pd, "IBVERBS_1.1", ibv_pd*, ibv_context* context)                                     \
  X(dealloc_pd, "IBVERBS_1.1", int, ibv_pd* pd)                                                 \
  X(reg_mr, "IBVERBS_1.1", ibv_mr*, ibv_pd* pd, void* address, size_t bytes, int access)        \
  X(dereg_mr, "IBVERBS_1.1", int, ibv_mr* mr)                                                   \
  X(create_cq, "IBVERBS_1.1", ibv_cq*, ibv_context* context, int entries, void* cqContext,      \
    ibv_comp_channel* channel, int vector)                                                      \
  X(destroy_cq, "IBVERBS_1.1", int, ibv_cq* cq)                                                 \
  X(create_comp_channel, "IBVERBS_1.0", ibv_comp_channel*, ibv_context* context)                \
  X(destroy_comp_channel, "IBVERBS_1.0", int, ibv_comp_channel* channel)                        \
  X(get_cq_event, "IBVERBS_1.1", int, ibv_comp_channel* channel, ibv_cq** cq, void** cqContext) \
  X(ack_cq_events, "IBVERBS_1.1", void, ibv_cq* cq, unsigned count)                             \
  X(create_qp, "IBVERBS_1.1", ibv_qp*, ibv_pd* pd, ibv_qp_init_attr* attributes)                \
  X(modify_qp, "IBVERBS_1.1", int, ibv_qp* qp, ibv_qp_attr* attributes, int mask)               \
  X(query_qp, "IBVERBS_1.1", int, ibv_qp* qp, ibv_qp_attr* attributes, int mask,                \
    ibv_qp_init_attr* initial)                                                                  \
  X(destroy_qp, "IBVERBS_1.1", int, ibv_qp* qp)                                                 \
  X(fork_init, "IBVERBS_1.1", int)

// Null where rdma-core is older than 34 (dma-buf) or 35 (forks).
#define CTRAN_VERBS_OPTIONAL_FUNCTIONS(X)                                              \
  X(reg_dmabuf_mr, "IBVERBS_1.12", ibv_mr*, ibv_pd* pd, uint64_t offset, size_t bytes, \
    uint64_t iova, int fd, int access)                                                 \
  X(is_fork_initialized, "IBVERBS_1.13", ibv_fork_status)

#ifdef IBVERBX_BUILD_RDMA_CORE
extern "C" {
#define CTRAN_DECLARE(name, version, result, ...) result ibv_##name(__VA_ARGS__);
CTRAN_VERBS_FUNCTIONS(CTRAN_DECLARE)
CTRAN_VERBS_OPTIONAL_FUNCTIONS(CTRAN_DECLARE)
#undef CTRAN_DECLARE
int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t entryBytes);
}
#endif

struct VerbsLibrary {
#define CTRAN_MEMBER(name, version, result, ...) result (*name)(__VA_ARGS__) = nullptr;
  CTRAN_VERBS_FUNCTIONS(CTRAN_MEMBER)
  CTRAN_VERBS_OPTIONAL_FUNCTIONS(CTRAN_MEMBER)
#undef CTRAN_MEMBER

  /// ibv_query_gid_ex, behind whose inline form this stands; null before rdma-core 33.
  int (*query_gid_ex)(ibv_context* context, uint32_t port, uint32_t index, ibv_gid_entry* entry,
                      uint32_t flags, size_t entryBytes) = nullptr;

  /// The library of this process, loaded at the first call. Throws ctran::Error(Unsupported) where
  /// there is none, or one that is too old; asks again next time. A library that is linked is
  /// there.
  static const VerbsLibrary& get();

  /// The library at `path`; throws like get(). It stays loaded.
  static VerbsLibrary load(const char* path);
};

#ifdef IBVERBX_BUILD_RDMA_CORE
inline constexpr VerbsLibrary kLinkedVerbs = [] {
  VerbsLibrary table;
#define CTRAN_TAKE(name, ...) table.name = ibv_##name;
  CTRAN_VERBS_FUNCTIONS(CTRAN_TAKE)
  CTRAN_VERBS_OPTIONAL_FUNCTIONS(CTRAN_TAKE)
#undef CTRAN_TAKE
  table.query_gid_ex = _ibv_query_gid_ex;
  return table;
}();

inline const VerbsLibrary& VerbsLibrary::get() { return kLinkedVerbs; }
#endif

/// Loads the library: get() with an error as a value, in the seeds' name.
Maybe ibvInit();

}  // namespace ibverbx
