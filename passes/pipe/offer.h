/* What the DP over stages is offered for one number of microbatches: sub-meshes and their views, tables of all layers
 * on them, what slots hold and what transfers take (passes/stage/stages.h). */
#ifndef AP_PASSES_PIPE_OFFER_H
#define AP_PASSES_PIPE_OFFER_H

#include "passes/batch.h"
#include "passes/pipe/search.h"
#include "passes/pipe/tables.h"
#include "passes/stage/stages.h"

/* What all numbers of microbatches have in common. */
typedef struct ap_offer_input {
    const ap_module *m;
    const ap_plan_options *opt;
    const ap_pipe_search_options *search;
    const ap_layers *l;
    const ap_layer_forms *forms;
    const ap_batch *batch;    /* NULL: there are no microbatches */
    const uint32_t *stage_of; /* per layer, or NULL */
} ap_offer_input;

typedef struct ap_offer_view {
    ap_pipe_view view; /* at the first ranks of its group */
    uint32_t group;
    ap_stages_shape shape;
    bool out;            /* some layer is too wide for it */
    uint32_t nprices;    /* those that make a difference */
    uint32_t *nlabels;   /* per boundary */
    ap_label *label;     /* [boundary * AP_LABELS_MAX] */
    int64_t **slot;      /* per boundary, per label: bytes of one slot; NULL at the ends */
    ap_layer_task *task; /* per form */
    uint32_t number;     /* among all views */
} ap_offer_view;

typedef struct ap_offer {
    const ap_offer_input *in;
    ap_arena *arena;
    int32_t microbatches;
    uint32_t nviews, ntables;
    ap_offer_view *view;
    const ap_offer_view **view_of; /* per choice */
    int32_t *first_rank;           /* per group, and behind the last */
    uint32_t *boundary_class, nclasses;
    int64_t *transfer; /* memo; 0: unknown, else 1 + ps */
    ap_stages_problem problem;
} ap_offer;

/* `fine`: views of two axes and all prices of memory too. Everything in `arena`. */
ap_status ap_offer_make(ap_ctx *ctx, ap_arena *arena, const ap_offer_input *in, int32_t microbatches, bool fine,
                        ap_offer *out);
/* offer_transfer.c: classes of boundaries, what slots hold, and the callback of the problem. */
void ap_offer_transfers(ap_offer *o);

#endif
