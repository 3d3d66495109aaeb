/* collective.h - what NCCL's calls become: parts that meet their partners, and what happens when they have met. */
#ifndef CUDASHIM_COLLECTIVE_H
#define CUDASHIM_COLLECTIVE_H

#include "include/nccl.h"
#include "shim.h"

struct ncclComm;

namespace shim
{

enum CallKind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, ALL_TO_ALL, SEND, RECV };
struct Call {
    CallKind kind;
    const void *send;
    void *recv;
    size_t count;
    ncclDataType_t type;
    ncclRedOp_t op;
    int peer; /* or root */
    ncclComm_t comm;
};

struct World;
struct Part {
    Call call;
    OpRef op;
    uint64_t number; /* of the collective in its communicator, or of the message between two ranks */
    bool started = false, done = false, taken = false;
};

const char *call_name(CallKind kind);
size_t type_size(ncclDataType_t type);
/* All ranks' parts of a collective, by rank. */
void collective_run(const std::vector<std::shared_ptr<Part>> &parts);

} // namespace shim

#endif
