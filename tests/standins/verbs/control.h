#pragma once

#include <cstdint>

/// How tests steer the stand-in for libibverbs.so.1: functions that it exports beside the verbs.
///
/// With seed 0 each work request is carried out when it can be: as it is posted, or as the receive
/// comes that it needs. With another seed nothing happens until a completion queue is polled; each
/// poll then takes some steps (a work request of a queue pair is carried out, or a completion gets
/// into its queue), of queue pairs that the seed chooses. In one thread the same seed gives the
/// same order. Work requests and completions of one queue pair keep their order, as the real ones
/// do.
#define STAND_IN_VERBS_CONTROLS(X)                                                                \
  /* Forgets all faults, and starts over with a seed. No queue pair may exist. */                 \
  X(standInVerbsReset, void, uint64_t seed)                                                       \
  /* Takes some steps, as a poll does: for ranks of one process that may all sleep. */            \
  X(standInVerbsStep, void)                                                                       \
  /* The `after`-th work request from now, of a queue pair (0: of any), fails with `status`. */   \
  X(standInVerbsFail, void, uint32_t qpNum, uint64_t after, int status)                           \
  /* Pulls the cable of a device, or plugs it in. */                                              \
  X(standInVerbsLink, void, const char* device, int up)                                           \
  /* Takes a device away: IBV_EVENT_DEVICE_FATAL, and all its queue pairs fail. */                \
  X(standInVerbsRemove, void, const char* device)                                                 \
  /* A queue pair (0: the first that there is) fails with IBV_EVENT_QP_FATAL, or the queue of its \
     completions overruns (IBV_EVENT_CQ_ERR): nothing gets into it any more. */                   \
  X(standInVerbsBreak, void, uint32_t qpNum, int event)                                           \
  /* Work requests carried out since the reset. */                                                \
  X(standInVerbsExecuted, uint64_t)                                                               \
  /* Objects (contexts, PDs, MRs, CQs, QPs) that exist. */                                        \
  X(standInVerbsObjects, int)                                                                     \
  /* Whether ibv_fork_init was called before any memory was registered. */                        \
  X(standInVerbsForksSafe, int)
