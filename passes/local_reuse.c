/* In place: a buffer whose life begins where the life of another one of the same size ends takes its memory, when the
 * instruction in between reads each element before it writes it (ir/local_overlap.c). So a residual sum, an activation
 * or a softmax needs no second buffer, and a large all_reduce none either. Both buffers become one that lives through
 * both lives: what is live at one time never grows. */
#include "passes/local.h"

#include <string.h>

/* A smaller one is folded by every rank at once unless it is in place (runtime/exchange.c), which costs a meeting. */
#define SMALL_ALL_REDUCE 4096

uint32_t ap_low_buffer_of(const ap_low *low, uint32_t buffer)
{
    while (low->buffers.at[buffer].into != AP_NONE)
        buffer = low->buffers.at[buffer].into;
    return buffer;
}

/* The buffer behind operand i, AP_NONE for one that does not lie in the arena. */
static uint32_t operand_buffer(const ap_low *low, const ap_instr *in, uint32_t i)
{
    return in->ref[i].space == AP_SPACE_ARENA ? ap_low_buffer_of(low, in->ref[i].index) : AP_NONE;
}

static int64_t in_places(int64_t bytes)
{
    return (bytes + AP_LOCAL_ALIGN - 1) / AP_LOCAL_ALIGN;
}

static bool same_start(const ap_ref *a, const ap_ref *b)
{
    return !memcmp(&a->offset, &b->offset, sizeof a->offset);
}

/* Lives of the two follow each other at instruction `at`, and they take the same number of places. */
static bool can_follow(const ap_low *low, uint32_t old, uint32_t new, uint32_t at)
{
    const ap_low_buffer *a = &low->buffers.at[old], *b = &low->buffers.at[new];
    return old != new && a->last == at && b->first == at &&in_places(a->bytes) == in_places(b->bytes);
}

/* All operands of the call in either buffer allow it: those read come from the old one, those written lie in the new.
 */
static bool call_allows(const ap_low *low, const ap_instr *in, uint32_t old, uint32_t new)
{
    const ap_kernel *k = &low->p->kernels.at[in->kernel];
    for (uint32_t r = 0; r < in->nrefs; r++) {
        uint32_t from = operand_buffer(low, in, r);
        if (k->operand[r].written ? from == old : from == new)
            return false;
        if (from != old)
            continue;
        for (uint32_t w = 0; w < in->nrefs; w++)
            if (operand_buffer(low, in, w) == new &&
                !(same_start(&in->ref[r], &in->ref[w]) && ap_kernel_in_place(k, r, w)))
                return false;
    }
    return true;
}

static void merge(ap_low *low, uint32_t old, uint32_t new)
{
    ap_low_buffer *a = &low->buffers.at[old], *b = &low->buffers.at[new];
    a->last = b->last;
    a->bytes = ap_max_i64(a->bytes, b->bytes);
    b->into = old;
}

static void reuse_in_call(ap_low *low, const ap_instr *in, uint32_t at)
{
    const ap_kernel *k = &low->p->kernels.at[in->kernel];
    for (uint32_t w = 0; w < in->nrefs; w++) {
        uint32_t new = k->operand[w].written ? operand_buffer(low, in, w) : AP_NONE;
        for (uint32_t r = 0; new != AP_NONE &&r < in->nrefs; r++) {
            uint32_t old = k->operand[r].written ? AP_NONE : operand_buffer(low, in, r);
            if (old == AP_NONE || !can_follow(low, old, new, at) || !call_allows(low, in, old, new))
                continue;
            merge(low, old, new);
            break;
        }
    }
}

static void reuse_in_exchange(ap_low *low, const ap_instr *in, uint32_t at)
{
    const ap_exchange *x = &in->exchange;
    uint32_t old = operand_buffer(low, in, 0), new = operand_buffer(low, in, 1);
    int64_t count = low->p->groups.at[x->group].size;
    for (int d = 0; d < x->ndims; d++)
        count = ap_sat_mul(count, x->extent[d]);
    if (old != AP_NONE && new != AP_NONE && count > SMALL_ALL_REDUCE &&ap_exchange_in_place(x) &&
        same_start(&in->ref[0], &in->ref[1]) && can_follow(low, old, new, at))
        merge(low, old, new);
}

void ap_low_reuse(ap_low *low)
{
    for (uint32_t i = 0; i < low->p->instrs.len; i++) {
        const ap_instr *in = &low->p->instrs.at[i];
        if (in->kind == AP_INSTR_CALL)
            reuse_in_call(low, in, i);
        else
            reuse_in_exchange(low, in, i);
    }
}
