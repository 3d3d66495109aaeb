/* The forward-only schedule.
 *
 * It has no deadlock whatever the depths: take all steps of all stages in order of (microbatch, stage along the wires).
 * recv k needs the send of k, from an earlier stage, and a slot freed at an earlier microbatch; claim k needs that what
 * was sent at an earlier microbatch has been received. So every step needs earlier ones only. */
#include "passes/pipe/schedule.h"

#include <string.h>

/* longest[s]: wires on the longest way from `from` to s; -1: none leads there. False: there is a cycle. Stages are
 * taken in any order, a step at a time. */
static bool longest_ways(const ap_wiring *w, uint32_t from, int32_t *longest)
{
    memset(longest, 0xff, w->nstages * sizeof *longest);
    longest[from] = 0;
    for (uint32_t round = 0; round <= w->nstages; round++) {
        bool grown = false;
        for (uint32_t i = 0; i < w->nwires; i++) {
            const ap_wire *x = &w->wire[i];
            if (longest[x->from] >= 0 && longest[x->to] < longest[x->from] + 1) {
                longest[x->to] = longest[x->from] + 1;
                grown = true;
            }
        }
        if (!grown)
            return true;
    }
    return false;
}

ap_status ap_schedule_depths(const ap_wiring *w, ap_wire *wire)
{
    int32_t *longest = AP_NEW_ARRAY(&w->ctx->scratch, int32_t, w->nstages);
    int32_t most = w->microbatches;
    for (uint32_t i = 0; i < w->nwires; i++) {
        if (!longest_ways(w, w->wire[i].from, longest))
            return ap_error(w->ctx, 0, "pipeline: stage @%s waits for what it makes itself",
                            ap_name_str(w->ctx, w->stage[w->wire[i].from]));
        wire[i].from_depth = (int32_t)ap_min_i64(most, 2);
        wire[i].to_depth = (int32_t)ap_min_i64(most, 1 + (int64_t)longest[w->wire[i].to]);
    }
    return AP_OK;
}

static void push_all(const ap_wiring *w, ap_arena *arena, uint32_t s, ap_act_kind kind, ap_list *list)
{
    for (uint32_t to = 0; to < w->nstages; to++)
        for (uint32_t i = 0; i < w->nwires; i++) {
            const ap_wire *x = &w->wire[i];
            if (x->to == to && (ap_act_is_of_sender(kind) ? x->from : x->to) == s)
                ap_vec_push(arena, &list->acts, (ap_act){.kind = kind, .wire = i});
        }
}

void ap_schedule_forward(const ap_wiring *w, ap_arena *arena, ap_list *lists)
{
    for (uint32_t s = 0; s < w->nstages; s++) {
        ap_list *list = &lists[s];
        list->acts.len = 0;
        ap_vec_push(arena, &list->acts, (ap_act){.kind = AP_ACT_LOOP, .turns = w->microbatches});
        push_all(w, arena, s, AP_ACT_RECV, list);
        push_all(w, arena, s, AP_ACT_CLAIM, list);
        ap_vec_push(arena, &list->acts, (ap_act){.kind = AP_ACT_RUN});
        push_all(w, arena, s, AP_ACT_FREE, list);
        push_all(w, arena, s, AP_ACT_SEND, list);
        list->acts.at[0].body = list->acts.len - 1;
    }
}
