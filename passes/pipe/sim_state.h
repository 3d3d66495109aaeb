/* The state of a replay, for the files of the simulator. */
#ifndef AP_PASSES_PIPE_SIM_STATE_H
#define AP_PASSES_PIPE_SIM_STATE_H

#include "passes/pipe/simulate.h"

typedef enum ap_sim_wire_phase { AP_SIM_REST, AP_SIM_LATENT, AP_SIM_MOVING } ap_sim_wire_phase;

typedef struct ap_sim_wire_state {
    int32_t claimed, sent, begun, arrived, freed;
    ap_sim_wire_phase phase;
    int64_t begun_ps;      /* of the microbatch that is on its way */
    double left;           /* picoseconds of moving at full speed */
    int64_t since;         /* when `left` was right */
    int64_t busy_ps;       /* time on the way, of those that have arrived */
    uint32_t source, next; /* of the same result: the first wire, the one behind this */
} ap_sim_wire_state;

typedef struct ap_sim_stage_state {
    ap_list_walk walk;
    bool running, waiting, done;
    int64_t since; /* of the run, the wait */
    int64_t busy;  /* what the wire waited for had been busy by then */
    int64_t bytes; /* of slots and work now */
} ap_sim_stage_state;

typedef struct ap_sim_heap {
    uint32_t n;
    uint32_t *actor; /* by time, then number */
    uint32_t *place; /* of an actor: 1 + index; 0: no event */
    int64_t *ps;     /* of an actor */
} ap_sim_heap;

typedef struct ap_sim_state {
    const ap_sim *in;
    ap_arena *arena;
    bool record;
    ap_sim_result *out;
    int64_t now;
    ap_sim_stage_state *stage;
    ap_sim_wire_state *wire;
    bool *moving;
    double *speed, *fair; /* of wires: now, and as they should be */
    ap_sim_ports *ports;
    ap_sim_heap heap;
    struct ap_sim_steady *steady; /* sim_steady.c */
} ap_sim_state;

/* ---- sim_steady.c ---- */

/* For whoever watches a replay that is not recorded: the last stage has done a run. Where the replay has come to repeat
 * itself, it is moved on by as many periods as fit before some list leaves its loop. */
void ap_sim_skip_ahead(ap_sim_state *s);

#endif
