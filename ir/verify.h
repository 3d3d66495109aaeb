/* Inside the verifier: structure (verify.c) first, then shardings (verify_sharding.c), which may rely on it.
 *
 * Operators and states: one marked `planned` stands in state planned only, `collective` and `step` in explicit only;
 * all others stand in every state. */
#ifndef AP_IR_VERIFY_H
#define AP_IR_VERIFY_H

#include "ir/module.h"

typedef struct ap_verifier {
    ap_module *m;
    ap_status status;
    ap_func func;     /* in progress */
    ap_block *home;   /* per value: the block that defined it so far, AP_NONE: none yet */
    ap_value *holder; /* per name: the visible value that has it, AP_NONE: none */
} ap_verifier;

/* Records one violation. Without a named location, the text begins with the line it is about. */
void ap_verify_node_error(ap_verifier *v, ap_node n, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
void ap_verify_error(ap_verifier *v, ap_loc loc, const char *fmt, ...) __attribute__((format(printf, 3, 4)));

/* Every type has a sharding (or none has, before planned) that fits shape and mesh; every node's types satisfy its
 * rule, or are what its elementary step makes of the operand. */
void ap_verify_shardings(ap_verifier *v);

#endif
