/* The body of a composite as its rule sees it: values as dense numbers, factors in classes, nodes with their own rules
 * (composite.c); and where a value is completed inside (cuts.c). */
#ifndef AP_IR_OP_BODY_H
#define AP_IR_OP_BODY_H

#include "ir/op/columns.h"

enum { NO_CLASS = UINT32_MAX };

enum { FLOW_NONE, FLOW_SPLIT, FLOW_PARTIAL }; /* what one axis does to a value; PARTIAL + ap_partial */

typedef struct body_node {
    ap_node node;
    ap_rule rule;
    uint32_t nin, nout;
    uint32_t *in, *out;                    /* dense value numbers; AP_NONE: from outside */
    uint32_t letter_class[AP_MAX_LETTERS]; /* roots */
} body_node;

typedef struct body {
    const ap_module *m;
    ap_arena arena;
    uint32_t *operand; /* of the composite: dense value numbers */
    uint32_t nnames;   /* of values, reshards of them included: name[i] has number[i] */
    ap_value *name;
    uint32_t *number;
    uint32_t nvalues; /* operands of the composite, then results of the nodes */
    int64_t *bytes;   /* per value, logical */
    uint32_t *maker;  /* per value: the body node; AP_NONE of operands */
    uint32_t *first;  /* where the factors of a value start in parent[], whole[] */
    uint32_t *parent; /* union-find over factors */
    bool *whole;      /* of roots */
    uint8_t *flow;    /* per value, of the walk in progress: as made */
    bool *cut;        /* per value: completed before it is read, if it is made partial */
    uint32_t nnodes;
    body_node *node;   /* without the terminator and reshards */
    ap_choice *choice; /* per node, of the walk in progress */
    uint32_t nyields;
    uint32_t *yield; /* dense value numbers */
} body;

/* What a value is where it is read. */
static inline uint8_t ap_body_flow(const body *b, uint32_t v)
{
    if (v == AP_NONE || (b->cut[v] && b->flow[v] >= FLOW_PARTIAL))
        return FLOW_NONE;
    return b->flow[v];
}

/* Cuts so that the node at which the walk failed can read more of its operands; `passes`: partial ones may pass
 * through it. There is a partial operand, so at least one more value is cut. */
void ap_body_cut(body *b, const body_node *at, bool passes);

#endif
