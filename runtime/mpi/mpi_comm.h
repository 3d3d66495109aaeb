/* SPDX-License-Identifier: MIT
 *
 * The communicator whose ranks are processes of an MPI job: what the files of the plugin share. Only point-to-point
 * messages are used, folded in the order of the group's list, so that results have the bits of `local`.
 *
 * Two threads call MPI, one at a time (`lock`): that of the device, and one that watches (mpi_watch.c), which also
 * keeps messages moving while the device computes. */
#ifndef APRT_MPI_COMM_H
#define APRT_MPI_COMM_H

#include "runtime/comm.h"

/* C, not C++ */
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

enum { MPI_COMM_HOST = 64 };

/* A list of messages under way. */
typedef struct mpi_batch {
    MPI_Request *request;
    int32_t *peer; /* rank of the program, for messages to users */
    int count, capacity;
} mpi_batch;

typedef struct mpi_buffer {
    char *bytes;
    size_t size;
} mpi_buffer;

/* A route of this rank, and its messages: one for each slot. */
typedef struct mpi_route {
    MPI_Datatype type; /* of all pieces, from the first byte of a slot */
    MPI_Request *slot; /* [depth] */
} mpi_route;

/* What the thread of the device tells the watching one: see aprt_sleeper of `local`. */
typedef struct mpi_state {
    _Atomic uint32_t turn, home;
    _Atomic int32_t kind, what, peer;
    _Atomic uint32_t at;
    _Atomic int64_t mb;
} mpi_state;

/* A thread that sleeps until its time has come or it is told to end. mpi_wait.c */
typedef struct mpi_nap {
    pthread_mutex_t lock;
    pthread_cond_t told;
    bool ends;
} mpi_nap;
void mpi_nap_init(mpi_nap *n);
void mpi_nap_deinit(mpi_nap *n);
bool mpi_nap_sleep(mpi_nap *n, double seconds); /* false: it is to end */
void mpi_nap_end(mpi_nap *n);

typedef struct mpi_watch mpi_watch;

typedef struct mpi_comm {
    aprt_comm base;
    aprt_comm_setup setup;
    const aprt_layout *layout;
    int32_t rank;
    char host[MPI_COMM_HOST], (*hosts)[MPI_COMM_HOST]; /* of all ranks */
    MPI_Comm exchanges, channels, control;             /* messages of one kind never meet those of another */
    pthread_mutex_t lock;
    aprt_device *device; /* from attach on */
    mpi_route *route;    /* [nroutes of the layout]; empty where this rank is at neither end */
    mpi_batch batch;     /* of the exchange in progress */
    mpi_buffer out, in, compact;
    mpi_state state;
    _Atomic uint32_t moving; /* a run is in progress: messages may be under way */
    mpi_watch *watch;
    aprt_failure why; /* where there is no device */
    _Atomic uint32_t ended;
    int end_status;
} mpi_comm;

/* What the runtime looks for in the plugin. */
__attribute__((visibility("default"))) const aprt_comm_ops *aprt_comm_plugin(void);

/* ---- mpi.c ---- */
/* Ends the job: says why, once, and never returns. From any thread. */
_Noreturn void mpi_comm_end(mpi_comm *c, int status, const char *text);
/* The status of an MPI call that failed; the text is with the device, or in `why` where there is none. */
int mpi_comm_fail(mpi_comm *c, aprt_device *d, int error, const char *what);
/* At least `size` bytes, whose old contents are lost. */
int mpi_buffer_grow(mpi_comm *c, aprt_device *d, mpi_buffer *b, size_t size);

/* ---- mpi_wait.c ---- */
int mpi_batch_send(mpi_comm *c, aprt_device *d, MPI_Comm on, int32_t to, int tag, const void *bytes, size_t size);
int mpi_batch_recv(mpi_comm *c, aprt_device *d, MPI_Comm on, int32_t from, int tag, void *bytes, size_t size);
/* Until all of the batch are done. */
int mpi_batch_wait(mpi_comm *c, aprt_device *d, aprt_wait kind);
/* Until all n are done; `peer` is who must do something for it. */
int mpi_requests_wait(mpi_comm *c, aprt_device *d, int n, MPI_Request *request, aprt_waiting of);
void mpi_batch_free(mpi_batch *b);

/* ---- mpi_watch.c ---- */
int mpi_watch_start(mpi_comm *c, aprt_failure *why);
/* When all processes are here; nobody is watched afterwards. */
void mpi_watch_stop(mpi_comm *c);

/* ---- mpi_exchange.c, mpi_channel.c, mpi_collect.c: of the interface ---- */
int mpi_exchange(aprt_comm *c, aprt_device *d, const aprt_exchange *x, const void *src, void *dst);
int mpi_attach(aprt_comm *c, aprt_device *d, aprt_failure *why);
void mpi_channels_close(mpi_comm *c);
void mpi_start(aprt_comm *c);
int mpi_finish(mpi_comm *c); /* all that was sent has left */
int mpi_recv(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
int mpi_claim(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
int mpi_free(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
int mpi_send(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
int mpi_collect(aprt_comm *c, void *const outputs[], aprt_failure *why);
int mpi_gather(aprt_comm *c, const void *bytes, size_t size, void **out, size_t *total, double **later,
               aprt_failure *why);

#endif
