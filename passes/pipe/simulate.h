/* The simulator: what the instruction lists of a pipeline do on a machine, event by event. Numbers only; it knows
 * nothing of models, and shares no formula with the planner, whose books it checks (DESIGN §8).
 *
 * Ranks of a stage are alike, so a stage is one actor: it does its list and is busy while it runs. A wire is another:
 * it moves one microbatch after the other, each as soon as it has been sent and a slot is free at the far end, beside
 * what the stages compute. All pieces of one microbatch of a wire advance together. Alone it takes latency + the time
 * of the port that is busiest with it; wires that load the same ports at once are slowed down alike until no port
 * carries more than it can, and who is not held up by a full port goes on faster (dominant resource fairness: Ghodsi et
 * al., NSDI'11).
 *
 * Or the ranks that receive copy what arrives themselves, while they stand at recv (CPUs; `by_receiver`): then they
 * take all that has been sent and has a slot, and go on when they have it.
 *
 * What a rank does at any time is one of: compute, exchanges of its stage, waiting while the wire it waits for moves
 * (exposed transfer), or waiting for other stages (bubble). */
#ifndef AP_PASSES_PIPE_SIMULATE_H
#define AP_PASSES_PIPE_SIMULATE_H

#include "ir/list.h"

/* For how long one microbatch of a wire keeps a port busy. */
typedef struct ap_sim_load {
    uint32_t port;
    double ps;
} ap_sim_load;

typedef struct ap_sim_wire {
    bool by_receiver;
    int64_t latency_ps;
    uint32_t nloads;
    const ap_sim_load *load;      /* a port stands once */
    int64_t from_bytes, to_bytes; /* of one slot on each rank */
} ap_sim_wire;

typedef struct ap_sim_run {
    int64_t compute_ps, exchange_ps;
} ap_sim_run;

typedef struct ap_sim_stage {
    int32_t nranks;
    int64_t compute_ps, exchange_ps; /* of one run */
    int32_t nshort;                  /* so many microbatches at the end have less to do, */
    const ap_sim_run *shorter;       /* each its own */
    int64_t resident_bytes;          /* on each rank, always */
    int64_t working_bytes;           /* while it runs; slots are not in it */
} ap_sim_stage;

typedef struct ap_sim {
    const ap_wiring *w;
    const ap_list *lists;      /* that ap_lists_check accepts */
    const ap_sim_stage *stage; /* per stage */
    const ap_sim_wire *wire;   /* per wire */
    uint32_t nports;
} ap_sim;

typedef enum ap_sim_event_kind {
    AP_SIM_RUN,      /* stage, microbatch */
    AP_SIM_WAIT,     /* stage, wire, microbatch: at recv or claim */
    AP_SIM_TRANSFER, /* wire, microbatch */
} ap_sim_event_kind;

typedef struct ap_sim_event {
    ap_sim_event_kind kind;
    uint32_t stage, wire;
    int32_t microbatch;
    int64_t start_ps, end_ps;
} ap_sim_event;

/* From `ps` on, each rank of the stage holds so many bytes. */
typedef struct ap_sim_memory {
    int64_t ps;
    uint32_t stage;
    int64_t bytes;
} ap_sim_memory;

/* The first four are together the time of the whole. */
typedef struct ap_sim_share {
    int64_t compute_ps, exchange_ps, transfer_ps, bubble_ps;
    int64_t peak_bytes, peak_ps; /* of a rank, and when it is reached first */
} ap_sim_share;

typedef struct ap_sim_result {
    int64_t ps;
    ap_sim_share *stage;
    double bubble;                /* of the time of all ranks together */
    int64_t exposed_ps;           /* exchanges and exposed transfers of a rank, averaged over ranks */
    AP_VEC(ap_sim_event) events;  /* by end, then as they come; where asked for */
    AP_VEC(ap_sim_memory) memory; /* by time; where asked for */
} ap_sim_result;

/* Same numbers, same answer. `record` fills events and memory. Results and scratch in `arena`. AP_ERR_BUG when the
 * lists do not come to their end. */
ap_status ap_simulate(const ap_sim *s, ap_arena *arena, bool record, ap_sim_result *out);

/* Picoseconds that one microbatch takes on a wire that has all ports for itself. */
int64_t ap_sim_alone(const ap_sim_wire *w);

/* ---- sim_ports.c: who shares what ---- */

typedef struct ap_sim_ports ap_sim_ports;
ap_sim_ports *ap_sim_ports_create(ap_arena *arena, const ap_sim_wire *wire, uint32_t nwires, uint32_t nports);
/* Wires whose speeds depend on each other's; each is in exactly one. A wire alone in its own is never slowed down. */
uint32_t ap_sim_ports_group(const ap_sim_ports *p, uint32_t wire);
const uint32_t *ap_sim_ports_members(const ap_sim_ports *p, uint32_t group, uint32_t *out_n);
/* speed[w] in (0, 1] of the members of a group with moving[w]. */
void ap_sim_ports_speeds(ap_sim_ports *p, uint32_t group, const bool *moving, double *speed);

#endif
