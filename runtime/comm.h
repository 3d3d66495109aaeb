/* SPDX-License-Identifier: MIT
 *
 * How ranks talk to each other: one interface, and who stands behind it. `local` (local.c): ranks are threads of this
 * process and read each other's memory. `mpi` (runtime/mpi/): every rank is a process of its own; a plugin, opened when
 * the program was started by mpirun or srun. One suite tests them all (tests/runtime/).
 *
 * The tables of a program are checked once, when it is opened, and kept as a *layout*: where a rank stands in its
 * groups, and what each channel carries from which rank to which. */
#ifndef APRT_COMM_H
#define APRT_COMM_H

#include "internal.h"

/* ---- layout.c ---- */
typedef struct aprt_move { /* a piece of a channel, as a box; offsets in elements */
    aprt_box box;
    int64_t src, dst;
} aprt_move;

/* All that one rank sends to another one through a channel: moves first ... first + count. */
typedef struct aprt_route {
    uint32_t channel;
    int32_t src_rank, dst_rank;
    int64_t first, count, bytes;
} aprt_route;

typedef struct aprt_layout {
    const aprt_program *program;
    int32_t *stage_of; /* [nranks] */
    int32_t **place;   /* per stage: [group * nranks + place of the rank] = list * size + position */
    aprt_move *move;
    aprt_route *route; /* by channel, destination, source */
    uint32_t nroutes;
    uint32_t *outgoing; /* numbers of the routes, by channel, source, destination */
    /* per channel and rank of the program: where its routes begin in `route` and in `outgoing` */
    uint32_t *in_first, *out_first; /* [(channel * (nranks + 1)) + rank] */
} aprt_layout;

/* *out is set on failure too and must be released. */
int aprt_layout_make(const aprt_program *program, aprt_layout *out, aprt_failure *why);
void aprt_layout_deinit(aprt_layout *layout);
static inline const aprt_stage *aprt_layout_stage(const aprt_layout *l, int32_t rank)
{
    return &l->program->stage[l->stage_of[rank]];
}
/* [begin, end) of the routes that end in a rank, or begin in it (as positions in `outgoing`). */
void aprt_layout_incoming(const aprt_layout *l, uint32_t channel, int32_t rank, uint32_t *begin, uint32_t *end);
void aprt_layout_outgoing(const aprt_layout *l, uint32_t channel, int32_t rank, uint32_t *begin, uint32_t *end);
/* Coordinates of a rank of the program in a microbatch; zeros behind them. */
void aprt_layout_coordinate(const aprt_layout *l, int32_t rank, int64_t mb, int64_t coordinate[APRT_MAX_AXES]);

/* A rank in one list of a group. */
typedef struct aprt_meeting {
    const int32_t *rank; /* of the peers, in order */
    int32_t size, me;
    int32_t list; /* which of the group's lists */
} aprt_meeting;
void aprt_layout_meeting(const aprt_layout *l, const aprt_device *d, uint32_t group, aprt_meeting *out);
/* The box that rank `rank` takes from the peer at position p, between these strides. */
void aprt_exchange_box(const aprt_layout *l, const aprt_exchange *x, int32_t rank, int64_t mb, int32_t p,
                       const int64_t *a, const int64_t *b, aprt_box *out);
/* The box that rank `rank` writes of an output in microbatch mb, between the output (a, from *offset) and row-major
 * order (b); false when it writes none. */
bool aprt_written_box(const aprt_layout *l, int32_t rank, int64_t mb, const aprt_written *w, aprt_box *out,
                      int64_t *offset);
/* Whoever folds part `i` of n of an all_reduce of `count` elements: [*first, *last). */
void aprt_exchange_part(int64_t count, int32_t n, int32_t i, int64_t *first, int64_t *last);

/* ---- communicators ---- */
typedef struct aprt_comm_setup {
    const aprt_layout *layout;
    double watchdog; /* seconds */
    int spins;
    /* What a device reports: where it stands (rank, stage, microbatch, instruction, node), and the place for what went
     * wrong. A plugin cannot link with them. */
    void (*where)(const aprt_device *d, char *out, size_t size);
    aprt_failure *(*why)(aprt_device *d);
} aprt_comm_setup;

typedef struct aprt_comm aprt_comm;

/* The functions with a device are called by its thread, inside of a job; the others by the thread that calls the
 * runtime, between jobs. A status other than APRT_OK or APRT_ABANDONED goes with a text in aprt_device_why(d). */
typedef struct aprt_comm_ops {
    uint32_t abi; /* APRT_ABI: the plugin and the runtime share tables */
    const char *name;
    int (*open)(const aprt_comm_setup *setup, aprt_comm **out, aprt_failure *why);
    void (*close)(aprt_comm *c);
    /* A device of this process, with its memory, before the first job that runs the program. */
    int (*attach)(aprt_comm *c, aprt_device *d, aprt_failure *why);
    void (*start)(aprt_comm *c);                /* before devices get a job */
    void (*home)(aprt_comm *c, aprt_device *d); /* its job is over */
    int (*barrier)(aprt_comm *c, aprt_failure *why);
    /* Bytes of every process, put together by `or`: each has set what is its own and left the rest zero. */
    int (*merge)(aprt_comm *c, char *bytes, size_t size, aprt_failure *why);
    int (*exchange)(aprt_comm *c, aprt_device *d, const aprt_exchange *x, const void *src, void *dst);
    int (*recv)(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
    int (*claim)(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
    int (*free)(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
    int (*send)(aprt_comm *c, aprt_device *d, uint32_t channel, int64_t mb);
    /* A rank of this process failed: nobody may go on waiting. Where ranks are processes it does not return. */
    void (*abort)(aprt_comm *c, int32_t rank, int status, const char *text);
    bool (*aborted)(aprt_comm *c);
    /* The outputs are complete on rank 0. */
    int (*collect)(aprt_comm *c, void *const outputs[], aprt_failure *why);
    /* Bytes of every process, on that of rank 0 one behind the other (malloc, *total bytes); elsewhere *out is NULL.
     * *later, on rank 0: per process, how much later its clock is than ours (malloc, [nranks]). */
    int (*gather)(aprt_comm *c, const void *bytes, size_t size, void **out, size_t *total, double **later,
                  aprt_failure *why);
} aprt_comm_ops;

struct aprt_comm {
    const aprt_comm_ops *ops;
    int32_t first_rank, nranks; /* of this process */
};

/* Byte `at` of a device's arena, within a slot of a channel, in memory of the host. */
static inline char *aprt_slot(const aprt_device *d, int64_t at)
{
    return d->host + (at - d->host_from);
}

/* device.c */
void aprt_device_where(const aprt_device *d, char *out, size_t size);
aprt_failure *aprt_device_why(aprt_device *d);

/* ---- waiting.c: what a rank waits for, told to those who watch ---- */
typedef enum aprt_wait { APRT_WAIT_GROUP, APRT_WAIT_RECV, APRT_WAIT_CLAIM, APRT_WAIT_COLLECT } aprt_wait;
typedef struct aprt_waiting {
    int32_t kind, what, peer; /* an aprt_wait; channel; rank, -1: its group or nobody in particular */
    uint32_t at;              /* instruction */
    int64_t mb;
} aprt_waiting;
/* `rank 2 (stage "late") waits for rank 1 to send microbatch 3 of channel "h"`. Returns the length, less than size. */
size_t aprt_waiting_text(const aprt_layout *l, int32_t rank, const aprt_waiting *w, char *out, size_t size);

extern const aprt_comm_ops aprt_comm_local;

/* The communicator for this process: local, or the plugin when it was started by mpirun or srun. comm.c */
int aprt_comm_choose(const aprt_comm_ops **out, aprt_failure *why);
/* Ranks of the job this process was started in by mpirun or srun, 0 if by neither; *rank is this one's. */
int32_t aprt_comm_launched(int32_t *rank);
/* waiting.c: tells `autopar run` how this job failed, in a file that it has named; the first process that fails does.
 * False when there is no such file: the process must say it itself. */
bool aprt_comm_report(int status, const char *text);

#endif
