/* What the two halves of refinement share: finding the cuts (refine.c) and writing them into the module
 * (refine_apply.c). */
#ifndef AP_PASSES_REFINE_H
#define AP_PASSES_REFINE_H

#include "passes/atoms.h"

typedef struct ap_refine {
    ap_module *m;
    ap_arena *arena;
    ap_atoms atoms;
    ap_atom **dim;          /* [value][dimension]: its atom, AP_NONE for extent 1; NULL for values without type */
    AP_VEC(ap_value) owner; /* [atom]: the value whose dimension it was made for; parts of atoms are not in it */
    bool *whole;            /* [node]: no cuts at this one */
    AP_VEC(ap_node) order;  /* all nodes, bodies after their owner */
} ap_refine;

/* Rewrites types and attributes by the leaves of the atoms; reshapes that became correspondences turn into views. */
void ap_refine_apply(ap_refine *r);

#endif
