/* Inside the evaluators of local programs: the ranks of one stage, their memory, and what they do for a microbatch. */
#ifndef AP_IR_LOCAL_MACHINE_H
#define AP_IR_LOCAL_MACHINE_H

#include "ir/local.h"

typedef struct ap_machine_device {
    int32_t coords[AP_MAX_AXES];
    uint8_t *arena, *param;
    uint8_t **input, **output; /* where each port of this rank begins: set by the owner before every run */
} ap_machine_device;

typedef struct ap_machine {
    const ap_local *p;
    ap_arena *tmp; /* lives as long as the machine */
    int64_t arena_bytes;
    ap_machine_device *device;           /* [nranks] */
    int64_t *input_bytes, *output_bytes; /* of each port */
} ap_machine;

/* ---- local_run.c ---- */
/* Ranks with an arena of so many bytes, p->arena_bytes or more, and loaded parameters. Fresh memory is filled with 0xff
 * (NaN), so that what is read before it is written shows. */
ap_status ap_machine_open(ap_machine *m, const ap_local *p, ap_arena *tmp, int64_t arena_bytes);
void ap_machine_set_microbatch(ap_machine *m, int32_t mb);
/* The tensor is what the port says. `what`: "input". */
ap_status ap_port_check(ap_ctx *ctx, const ap_port *port, const char *what, const ap_tensor *t);
/* A tensor for the port, in `arena`. */
ap_status ap_port_tensor(ap_ctx *ctx, const ap_port *port, ap_arena *arena, ap_tensor *out);

/* ---- local_eval.c ---- */
ap_status ap_machine_run(const ap_machine *m);

#endif
