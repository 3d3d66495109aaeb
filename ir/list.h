/* Instruction lists: what every rank of a stage does, for all microbatches of one run (DESIGN §4, §10). Loops are not
 * unrolled. The lists of a pipeline say how its stages meet; neither what a stage computes nor how a value crosses is
 * here, so pipelines and programs share them.
 *
 *     list @s1 {
 *       loop 4 {
 *         recv %h k             until microbatch k of %h is whole in this stage's slot k mod depth
 *         claim %g k -> @s2     until the slot of %g may be written: what was in it has been sent
 *         run k                 the stage's function
 *         free %h k             the slot of %h may be filled again
 *         send %g k -> @s2      starts the transfer, does not wait
 *       }
 *     }
 *
 * A *wire* leads from a result of one stage to an argument of another one. Microbatches cross it in order, each when it
 * has been sent and the slot at the far end is free: at once, if the machine can do that beside its computing, or as
 * late as when the receiver stands at recv. Wires that leave the same result share its slots. */
#ifndef AP_IR_LIST_H
#define AP_IR_LIST_H

#include "ir/base/text.h"
#include "ir/lex.h"

typedef enum ap_act_kind {
    AP_ACT_RECV,
    AP_ACT_CLAIM,
    AP_ACT_RUN,
    AP_ACT_FREE,
    AP_ACT_SEND,
    AP_ACT_LOOP, /* the next `body` acts, `turns` times; loops do not nest */
    AP_ACT_KIND_COUNT
} ap_act_kind;
extern const char *const ap_act_text[AP_ACT_KIND_COUNT];

/* In a loop, microbatch = turn + shift ("k+2"); outside of one, shift itself. */
typedef struct ap_act {
    ap_act_kind kind;
    uint32_t wire; /* RECV, CLAIM, FREE, SEND */
    int32_t shift;
    int32_t turns; /* LOOP: 1 or more */
    uint32_t body; /* LOOP: 1 or more */
} ap_act;

typedef struct ap_list {
    AP_VEC(ap_act) acts;
} ap_list;

/* Depths: how many slots each end has, 1 or more. (slot, to) is unique: a stage receives a value once. */
typedef struct ap_wire {
    ap_name slot;
    uint32_t from, result; /* stage, and its result */
    uint32_t to, argument;
    int32_t from_depth, to_depth;
} ap_wire;

/* What lists need to know of their pipeline or program. Borrowed arrays. */
typedef struct ap_wiring {
    ap_ctx *ctx;
    int32_t microbatches;
    uint32_t nstages;
    const ap_name *stage;
    uint32_t nwires;
    const ap_wire *wire;
} ap_wiring;

enum { AP_MAX_MICROBATCHES = 65536, AP_LIST_MAX_ACTS = 4096 };
/* All acts of all lists with their turns: what the check replays. */
#define AP_LISTS_MAX_TURNS ((int64_t)1 << 26)

static inline bool ap_act_has_wire(ap_act_kind k)
{
    return k != AP_ACT_RUN && k != AP_ACT_LOOP;
}
/* Whether the act is of the stage that the wire leaves. */
static inline bool ap_act_is_of_sender(ap_act_kind k)
{
    return k == AP_ACT_CLAIM || k == AP_ACT_SEND;
}

/* Walks a list act by act, loops unrolled:
 *     for (ap_list_walk w = {.list = l}; ap_list_next(&w);) ... w.act, w.microbatch */
typedef struct ap_list_walk {
    const ap_list *list;
    const ap_act *act;
    int32_t microbatch; /* of act */
    uint32_t next;      /* index of the act that follows */
    uint32_t loop, end; /* of the loop that we are in: 1 + index of its head, index behind its body; 0: none */
    int32_t turn;
} ap_list_walk;
bool ap_list_next(ap_list_walk *w);

/* One block per stage, in order. `acts` of each list go into the context's arena when they are read. */
void ap_lists_print(const ap_wiring *w, const ap_list *lists, ap_text *out);
/* "recv %h k", "run k+1": as in the text; for messages. */
void ap_act_print(const ap_wiring *w, const ap_act *a, bool in_loop, ap_text *out);
/* Reads blocks `list @stage { ... }` as long as there are any, into lists[nstages], which are empty before; a stage
 * without a block or with two is an error. */
ap_status ap_lists_parse(ap_lex *l, const ap_wiring *w, ap_list *lists);

/* Proves that the lists do what they should, under bounded slots and whatever the speed of ranks and wires (the
 * argument stands in list_check.c): every stage runs each microbatch once and in order; each wire carries each
 * microbatch once and in order; nothing is read before it has arrived or after its slot was freed, nothing written into
 * a slot that still holds what is to be sent; no deadlock; never more in flight than slots. AP_ERR_MODEL: messages name
 * stage, instruction and slot. */
ap_status ap_lists_check(const ap_wiring *w, const ap_list *lists);

#endif
