/* SPDX-License-Identifier: MIT
 *
 * The communicator whose ranks are threads of one process: what local.c, local_exchange.c and local_channel.c share. */
#ifndef APRT_LOCAL_H
#define APRT_LOCAL_H

#include "comm.h"

/* What a rank waits for, while it sleeps. `turn` is odd then; it moves whenever a sleep begins or ends, so that others
 * can tell whether anyone has moved. */
typedef struct aprt_sleeper {
    _Atomic uint32_t turn, home; /* home: has no job */
    _Atomic int32_t kind, what, peer;
    _Atomic int64_t mb;
    _Atomic uint32_t at;
} aprt_sleeper;

typedef struct local_rank {
    _Alignas(64) const void *_Atomic src; /* published during an exchange */
    void *_Atomic dst;
    aprt_device *device;
    _Alignas(64) aprt_sleeper sleeper;
} local_rank;

/* How far something has come, in microbatches of this run. */
typedef struct aprt_counter {
    _Alignas(64) aprt_gate gate;
    _Atomic int64_t count;
} aprt_counter;

typedef struct local_comm {
    aprt_comm base;
    aprt_comm_setup setup;
    const aprt_layout *layout;
    local_rank *rank;
    aprt_barrier *barrier; /* per stage, group and list */
    uint32_t nbarriers;
    uint32_t **first_barrier; /* per stage and group */
    aprt_counter *sent;       /* per channel and rank of the program: [channel * nranks + rank] */
    aprt_counter *taken;      /* per route */
    uint32_t nsent;
    _Alignas(64) _Atomic uint32_t aborted;
} local_comm;

/* One wait of a rank. After it failed, its status is what the rank returns. */
typedef struct local_wait {
    local_comm *c;
    aprt_device *d;
    aprt_wait kind;
    int32_t what, peer;
    /* while it sleeps */
    bool asleep;
    uint32_t turns;
    double since;
    bool stalled;
} local_wait;

aprt_tick local_tick;
double local_tick_seconds(const local_comm *c);
/* After a wait that slept. */
void local_wake(local_wait *w);
/* What to return after a wait that failed. */
int local_wait_status(const local_wait *w);
/* Waits until the counter is at least `least`. */
int local_counter_wait(local_wait *w, aprt_counter *counter, int64_t least);

/* ---- local_exchange.c, local_channel.c: of the interface ---- */
int local_exchange(aprt_comm *c, aprt_device *d, const aprt_exchange *x, const void *src, void *dst);
int local_recv(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
int local_claim(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
int local_free(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
int local_send(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);

#endif
